// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

import {Counter} from "./Counter.sol";

interface Vm {
    function startBroadcast() external;
    function stopBroadcast() external;
}

/// One deployment and thirty calls by one sender: `forge script --broadcast` sends them at once, in no order.
contract Burst {
    Vm constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    function run() external {
        vm.startBroadcast();
        Counter counter = new Counter(5);
        for (uint256 call = 0; call < 30; ++call) counter.increment();
        vm.stopBroadcast();
    }
}
