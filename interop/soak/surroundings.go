package soak

import (
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/testutils"
)

// surroundings are what a mesh runs in: sockets and real time for the soak, a network in memory and
// virtual time for a simulation.
type surroundings interface {
	// uri names a control plane, by its address, in the bootstrap of a host.
	uri(host, addr string) string
	// dial has the options with which a host opens connections.
	dial(host string) []grpc.DialOption
	// link returns the latency in front of a server; nil if the network has it.
	link() *testutils.Link
	// rest waits between two RPCs of a kind.
	rest(done <-chan struct{})
	// hold says for how long a stream is held, and the time between two messages of it. long is longer than
	// policies keep an unused connection.
	hold(long bool) (whole, every time.Duration)
	// refresh is how often clients read their certificates again.
	refresh() time.Duration
	// stir says that something has happened, so that RPCs are worth their while.
	stir()
}

// sockets are the surroundings of the soak.
type sockets struct{}

func (sockets) uri(_, addr string) string { return addr }

func (sockets) dial(string) []grpc.DialOption { return nil }

func (sockets) link() *testutils.Link { return new(testutils.Link) }

func (sockets) rest(done <-chan struct{}) { restFor(pace, done) }

func (sockets) stir() {}

func (sockets) refresh() time.Duration { return 100 * time.Millisecond }

func (sockets) hold(long bool) (whole, every time.Duration) {
	if long {
		return 1500 * time.Millisecond, pace
	}
	return 50 * time.Millisecond, pace
}

func restFor(d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}
