//go:build !linux

// Package loopback has servers on 127.0.0.1, for tests whose servers stop
// and listen again, and their addresses.
package loopback

import (
	"fmt"
	"net"
)

// Address is a TCP address on 127.0.0.1 that was free when it was reserved. Unlike on
// Linux nothing holds it while no server listens.
type Address struct {
	text string
	// network has the address if it is not nil.
	network Network
}

// Reserve returns an Address.
func Reserve() (*Address, error) {
	if n := simulated.Load(); n != nil {
		return &Address{text: (*n).Reserve(), network: *n}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	defer l.Close()
	return &Address{text: l.Addr().String()}, nil
}

// String returns "127.0.0.1:port".
func (a *Address) String() string { return a.text }

// Listen listens on the address.
func (a *Address) Listen() (net.Listener, error) {
	if a.network != nil {
		return a.network.Listen(a.text)
	}
	return net.Listen("tcp", a.text)
}

// Release gives the address up.
func (a *Address) Release() {}
