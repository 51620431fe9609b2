// Package lbtest has fixtures for tests of policies: a channel whose SubConns connect over a
// simulated network. It follows gRPC's rules (SubConns report from one goroutine, back off
// after a failure, and become IDLE when a connection ends), so that gRPC's own policies run on
// it, also in a synctest bubble.
package lbtest

import (
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"
)

// Backoff is how long a SubConn stays in TRANSIENT_FAILURE.
const Backoff = time.Second

// Reach is what happens to connections to an address.
type Reach int

// Connections are established at once, refused, hang, end before the server has spoken, or hang while existing ones go on.
const (
	Up Reach = iota
	Refused
	Silent
	Mute
	Full
)

// Network decides which addresses the ClientConn on it can reach, at first all.
type Network struct {
	mu    sync.Mutex
	reach map[string]Reach
	cc    *ClientConn
}

// NewNetwork returns a Network.
func NewNetwork() *Network { return &Network{reach: make(map[string]Reach)} }

// Set changes what happens to connections to addr. Unless it is Up or Full, existing ones break; those
// that hang proceed if it is not Silent or Full.
func (n *Network) Set(addr string, r Reach) {
	n.mu.Lock()
	n.reach[addr] = r
	n.mu.Unlock()
	for _, sc := range n.cc.subConnsTo(addr) {
		n.cc.serializer.Post(func() { sc.networkChanged(r) })
	}
}

func (n *Network) get(addr string) Reach {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reach[addr]
}

func (sc *SubConn) networkChanged(r Reach) {
	switch {
	case r == Full:
	case sc.state == connectivity.Ready && r != Up:
		sc.report(connectivity.Idle, nil)
	case sc.state == connectivity.Connecting && r != Silent:
		sc.attempt()
	}
}
