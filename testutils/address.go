package testutils

import (
	"net"
	"testing"
)

// Address is a TCP address on 127.0.0.1 for a server of the test's own making
// that stops and listens again. It stays the test's until the test ends, so
// that no other connection of the machine takes the port in between.
type Address struct{ port *port }

// ReserveAddress reserves an Address until the test ends.
func ReserveAddress(t testing.TB) *Address {
	t.Helper()
	p, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.release)
	return &Address{port: p}
}

// String returns "127.0.0.1:port".
func (a *Address) String() string { return a.port.addr }

// Listen listens on the address. Connections are refused while nobody does.
func (a *Address) Listen() (net.Listener, error) { return a.port.listen() }
