package loopback

import (
	"net"
	"sync/atomic"
)

// A Network takes the place of the loopback interface, for simulations in memory.
type Network interface {
	// Reserve returns an address that no other call returns.
	Reserve() string
	// Listen listens on such an address.
	Listen(addr string) (net.Listener, error)
}

// simulated is what addresses are reserved of; nil for the loopback interface.
var simulated atomic.Pointer[Network]

// Simulate makes addresses that are reserved from now on those of a network in memory, so that test servers
// listen there. nil ends that.
func Simulate(n Network) {
	if n == nil {
		simulated.Store(nil)
		return
	}
	simulated.Store(&n)
}
