package leaf_test

import (
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chatty is a policy that reports several times in the course of an update, READY in the end.
type chatty struct {
	balancer.Balancer
	cc balancer.ClientConn
}

func (chatty) Name() string { return "chatty" }

func (chatty) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return chatty{cc: cc}
}

func (c chatty) UpdateClientConnState(balancer.ClientConnState) error {
	c.ExitIdle()
	return nil
}

func (c chatty) ExitIdle() {
	for range 5 {
		c.cc.UpdateState(tree.Waiting(connectivity.Connecting))
	}
	c.cc.UpdateState(tree.Waiting(connectivity.Ready))
}

func (chatty) Close() {}

// Reports arrive as events, as many in a row as one. The caller of Update reads the state afterwards; that of ExitIdle does not, and relies on
// the event.
func TestReportsArriveAsEvents(t *testing.T) {
	balancer.Register(chatty{})
	for _, tc := range []struct {
		name   string
		during connectivity.State
		report func(*leaf.Policy)
	}{
		{"within an update", connectivity.Ready, func(p *leaf.Policy) { p.Update([]xdsresource.Endpoint{{Address: "1.1.1.1:1", Weight: 1}}, "") }},
		{"at any other time", connectivity.Connecting, (*leaf.Policy).ExitIdle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bed := lbtest.NewBed(t)
			changes := 0
			var during connectivity.State
			var policy *leaf.Policy
			bed.Loop.Do(func() {
				policy = leaf.New(bed.Env, "chatty", leaf.ForLocality, func() { changes++ })
				tc.report(policy)
				during = policy.State().ConnectivityState
			})
			bed.Loop.Do(func() {}) // What was posted has run.
			xdstest.Equal(t, "the state at once", tc.during, during)
			xdstest.Equal(t, "the state then", connectivity.Ready, policy.State().ConnectivityState)
			xdstest.Equal(t, "changes", 1, changes)
			bed.Loop.Do(policy.Close)
		})
	}
}
