"""What is confirmed, and when the stream may be read: also against psycopg2's own confirmations, which a model plays here."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cacheupdater.adapters.feed_replication.progress import Progress


def read_transaction(progress, end, *, begins=None, owed=True):
    progress.came(begins if begins is not None else end - 5)
    progress.came(end)
    progress.ended(end, owed=owed)


def test_nothing_is_told_before_the_consumer_has_confirmed_it():
    progress = Progress(50)
    read_transaction(progress, 100)
    assert progress.tell() == 0
    progress.confirmed(100)
    assert progress.untold
    assert progress.tell() == 100
    assert not progress.untold


def test_a_transaction_that_tells_nothing_is_confirmed_by_itself_but_not_past_one_that_waits():
    progress = Progress()
    read_transaction(progress, 100, owed=False)
    assert progress.tell() == 100
    read_transaction(progress, 200)
    read_transaction(progress, 300, owed=False)
    assert progress.tell() == 100
    progress.confirmed(200)
    assert progress.tell() == 300


def test_no_message_is_read_where_a_keepalive_would_confirm_too_much():
    progress = Progress()
    read_transaction(progress, 100)
    progress.confirmed(100)
    progress.tell()
    read_transaction(progress, 200)
    assert progress.may_read()  # the last message begins behind what was told
    progress.came(60)  # a row of a transaction that has been open for long
    assert not progress.may_read()
    progress.confirmed(200)
    assert progress.may_read()


def test_the_description_of_a_table_holds_up_nothing():
    progress = Progress()
    read_transaction(progress, 100)
    progress.came(150)  # a later transaction begins
    progress.came(0)
    assert progress.may_read()
    progress.confirmed(100)
    progress.tell()
    read_transaction(progress, 200)
    progress.came(60)
    progress.came(0)
    assert not progress.may_read(), "the last row is an early one"


class Psycopg2:
    """What `read_message` and `send_feedback` do to the places (psycopg/pqpath.c of 2.9)."""

    def __init__(self):
        self.explicit = self.flush = self.last = 0

    def keepalive(self, end):
        if self.explicit >= self.last and end > self.explicit and end > self.flush:
            self.flush = end

    def message(self, begins):
        self.last = begins

    def tell(self, place):
        self.explicit, self.flush = max(self.explicit, place), max(self.flush, place)


steps = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "read", "confirm", "tell", "keepalive"]), st.integers(0, 10_000)
    ),
    max_size=80,
)
transactions = st.lists(st.tuples(st.integers(0, 300), st.booleans(), st.booleans()), min_size=1, max_size=12)


def stream(drawn):
    """Messages in the server's order: (begins, what, end, owed). Transactions end in order, and may begin long before.

    A description and its row come in one breath.
    """
    end = 100
    for age, owed, described in drawn:
        end += 50
        begins = max(1, end - 10 - age)
        yield begins, "begin", end, owed
        if described:
            yield 0, "row", end, owed
        yield begins, "row", end, owed
        yield end, "commit", end, owed


@settings(max_examples=400)
@given(transactions, steps)
def test_nothing_is_ever_confirmed_at_the_server_that_the_consumer_has_not(drawn, played):
    progress, driver = Progress(), Psycopg2()
    messages = list(stream(drawn))
    owed, confirmed, sent, described = [], 0, 100, False
    for step, number in played:
        if step == "read" and messages and progress.may_read():
            begins, what, end, owes = messages.pop(0)
            described = not begins
            driver.message(begins)
            progress.came(begins)
            if what == "commit":
                progress.ended(end, owed=owes)
                owed += [end] if owes else []
                sent = end
        elif step == "keepalive" and progress.may_read() and not described:
            driver.keepalive(sent)
        elif step == "confirm" and owed:
            confirmed = max(confirmed, owed[number % len(owed)])
            progress.confirmed(confirmed)
        elif step == "tell":
            driver.tell(progress.tell())
        assert all(end <= confirmed for end in owed if end <= driver.flush)
