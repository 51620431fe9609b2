// Package loopback has servers on 127.0.0.1, for tests whose servers stop
// and listen again, and their addresses.
package loopback

import (
	"fmt"
	"net"
	"sync/atomic"
)

// Address is a TCP address on 127.0.0.1 that stays reserved while no server listens on
// it, on Linux. Elsewhere it was free when it was reserved.
type Address struct {
	text    string
	listen  func(addr string) (net.Listener, error)
	release func()
}

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
	simulated.Store(&n)
}

// Reserve returns an Address that is reserved until Release is called.
func Reserve() (*Address, error) {
	if n := simulated.Load(); n != nil && *n != nil {
		return &Address{(*n).Reserve(), (*n).Listen, func() {}}, nil
	}
	text, release, err := reserve()
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	return &Address{text, listen, release}, nil
}

// String returns "127.0.0.1:port".
func (a *Address) String() string { return a.text }

// Listen listens on the address.
func (a *Address) Listen() (net.Listener, error) { return a.listen(a.text) }

// Release gives the address up.
func (a *Address) Release() { a.release() }
