"""DBN of a shop: carts and purchases. After pyClickModels, and what its users asked for.

    examine --attracted--> click --carts?--> cart --buys?--> purchase
                                 --no cart--> buys without cart? (in one click)
    purchase --continues after purchase--> examine the next, else leave
    click, no purchase --satisfied--> leave
    not attracted, or not satisfied --continues--> examine the next, else leave

Columns of the log: `cart` and `purchase` (yes or no, null where unknown), on results that were
clicked. If every purchase ended the page, a basket of two would be impossible; here people continue
after buying as often as the log says.

Not for shops in which carts are filled from pages that are not in the log.
"""

from gecasmo.language import Parameter, Result, User, flip
from gecasmo.model import ClickModel


class ShopDBN(ClickModel):
    """As DBN, but a visit may lead to a cart or a purchase, and people may go on after that."""

    attraction = Parameter("query", "doc")
    carting = Parameter("query", "doc")
    buying = Parameter("query", "doc")
    buying_without_cart = Parameter()
    satisfaction = Parameter("query", "doc")
    continuation = Parameter()
    continuation_after_purchase = Parameter()

    relevance = ("attraction", "carting", "buying")

    def browse(self, user: User, result: Result) -> None:
        if flip(self.attraction):
            user.click()
            carts = flip(self.carting)
            if carts:
                user.emit("cart")
            if flip(self.buying if carts else self.buying_without_cart):
                user.emit("purchase")
                if not flip(self.continuation_after_purchase):
                    user.leave()
                return
            if flip(self.satisfaction):
                return user.leave()
        if not flip(self.continuation):
            user.leave()
