"""Any network."""


class Torch:
    pass
