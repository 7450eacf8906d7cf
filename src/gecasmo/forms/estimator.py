"""Any classifier."""


class Estimator:
    pass
