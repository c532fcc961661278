"""The suite that every journal's store must pass, for whoever writes one. Needs pytest and pytest-asyncio.

    class TestMine(JournalContract):
        @pytest.fixture
        def stores(self, tmp_path): return MyStores(tmp_path)

    class TestMineByTwo(TwoProcesses):
        @pytest.fixture
        def url(self, tmp_path): return f"mine://{tmp_path}"

``stores`` opens journals on one set of stores (`Stores`); `TwoProcesses` opens ``url`` by `relay.journal.url` in
processes of its own, and pauses and kills them. For readable failures call
``pytest.register_assert_rewrite("relay.testing")`` before importing it.
"""

from relay.testing.contract import JournalContract
from relay.testing.opening import Stores
from relay.testing.samples import intake
from relay.testing.two import TwoProcesses

__all__ = ["JournalContract", "Stores", "TwoProcesses", "intake"]
