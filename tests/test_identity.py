"""Who the node is, and what follows for the prechecks."""

from __future__ import annotations

from structlog.testing import capture_logs

from relay import gas
from relay.devnode import NodeSettings
from relay.devnode.faults import Answer, Refuse
from relay.upstream.identity import Identity
from relay.verdict import Client
from tests.stand import Stand


async def test_the_chain_id_is_learnt() -> None:
    """``auto``: whatever the node says."""
    async with Stand.over(NodeSettings(chain_id=77)) as stand:
        assert (stand.identity.chain_id, stand.identity.policy.chain_id) == (77, 77)
        assert (await stand.identity.check()).ready


async def test_off_checks_no_chain_id() -> None:
    """The lanes still know which chain they are on."""
    async with Stand.over(prechecks={"chain_id": "off"}) as stand:
        assert stand.identity.policy.chain_id is None


async def test_a_configured_chain_id_wins_and_makes_another_chain_not_ready() -> None:
    """The node's word does not change what the operator expects."""
    async with Stand.over(prechecks={"chain_id": 5}) as stand:
        assert stand.identity.policy.chain_id == 5
        readiness = await stand.identity.check()
        assert (readiness.ready, readiness.detail) == (
            False,
            "the upstream is on chain 1337, [prechecks] chain_id expects 5",
        )


async def test_a_node_that_cannot_be_asked_is_not_ready_and_nothing_is_refused() -> None:
    """What is not known refuses nothing; when the node answers it is ready again."""
    async with Stand.over() as stand:
        stranger = Identity(stand.client, stand.settings.prechecks)
        stand.node.script.add(Refuse(method="eth_chainId", message="not now", times=2))

        assert not (await stranger.refresh()).ready
        assert not (await stranger.check()).ready
        assert stranger.policy.chain_id is None
        assert (await stranger.refresh()).ready
        assert stranger.policy.chain_id == 1337


async def test_a_node_that_changes_its_chain_is_followed_at_once() -> None:
    """With "auto" the next look is believed, for the prechecks as well as for /readyz, and the log says so."""
    async with Stand.over() as stand:
        stand.node.script.add(Answer(method="eth_chainId", result="0x4d"))
        with capture_logs() as lines:
            readiness = await stand.identity.check()

        assert (readiness.ready, stand.identity.policy.chain_id) == (True, 77)
        assert [(line["before"], line["now"]) for line in lines] == [(1337, 77)]


async def test_the_log_tells_of_changes_only() -> None:
    """One line when the node goes, one when it comes back, whoever looks how often."""
    async with Stand.over() as stand:
        stand.node.script.add(Refuse(method="eth_chainId", message="not now", times=3))
        with capture_logs() as lines:
            for _ in range(5):
                await stand.identity.check()

        assert [line["event"] for line in lines] == ["upstream not ready", "upstream ready"]


async def test_a_chain_id_that_is_no_number_is_not_ready() -> None:
    """A gateway may answer anything."""
    async with Stand.over() as stand:
        stand.node.script.add(Answer(method="eth_chainId", result="mainnet"))
        readiness = await stand.identity.check()

        assert not readiness.ready
        assert "mainnet" in readiness.detail


async def test_the_client_is_told_by_its_version() -> None:
    """It chooses the table by which refusals are read."""
    async with Stand.over() as stand:
        stand.node.script.add(Answer(method="web3_clientVersion", result="Geth/v1.17.6-unstable/linux-amd64/go1.26"))
        await stand.identity.refresh()

        assert stand.identity.client is Client.GETH


async def test_gas_rules_follow_the_settings_or_the_node() -> None:
    """Off, a named fork, or what ``eth_config`` tells; else the loosest of all."""
    async with Stand.over() as stand:
        learnt = stand.identity.policy.gas
        stand.node.script.add(Refuse(method="eth_config", message="the method eth_config does not exist"))
        await stand.identity.refresh()
        assert stand.identity.policy.gas is gas.LENIENT
        assert learnt is not gas.LENIENT
    async with Stand.over(prechecks={"gas_rules": "osaka"}) as stand:
        assert stand.identity.policy.gas is gas.FORKS["osaka"]
    async with Stand.over(prechecks={"gas_rules": "off"}) as stand:
        assert stand.identity.policy.gas is None
