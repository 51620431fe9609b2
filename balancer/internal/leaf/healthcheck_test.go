package leaf_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// checked is a leaf over the addresses "a:1" and "b:1", whose servers have health services.
type checked struct {
	*lbtest.Fixture[*leaf.Policy]
	a, b lbtest.HealthServer
}

func (c *checked) configure(check *xdsresource.HealthCheck) {
	all := []xdsresource.Endpoint{{Address: "a:1", Weight: 1}, {Address: "b:1", Weight: 1}}
	c.Update(func() {
		c.Env.Endpoints.Update(conns.Config{Localities: []xdsresource.Locality{{Endpoints: all}}, HealthCheck: check})
		c.Policy.Update(all, "")
	})
}

func newChecked(t *testing.T, policy string, check *xdsresource.HealthCheck) *checked {
	c := new(checked)
	c.Fixture = lbtest.NewFixture(t, func(env *tree.Env, changed func()) *leaf.Policy {
		return leaf.New(env, policy, leaf.ForLocality, changed)
	})
	c.CC.Server = func(addr string) grpc.ClientConnInterface {
		if addr == "a:1" {
			return &c.a
		}
		return &c.b
	}
	c.configure(check)
	return c
}

// gRFC A17, "Client Workflow": a check that fails is tried again with "exponential backoff between attempts".
func TestHealthCheckBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, "round_robin", &xdsresource.HealthCheck{Service: "shop"})
		c.b.Answer(healthpb.HealthCheckResponse_NOT_SERVING)
		c.a.Answer(status.Error(codes.Unavailable, "not now"))
		for addr, want := range map[string]string{"a:1": "failed", "b:1": "NOT_SERVING"} {
			got := inspect.Endpoint{Addresses: []string{addr}}
			c.Env.Endpoints.Describe(&got)
			xdstest.Equal(t, "the answer in diagnostics", want, got.HealthCheck)
		}
		for range 4 {
			for n := len(c.a.Began()); len(c.a.Began()) == n; {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			c.a.Answer(status.Error(codes.Unavailable, "not now"))
		}
		began := c.a.Began()
		for i, want := 1, time.Second; i < len(began); i, want = i+1, want*16/10 {
			if pause := began[i].Sub(began[i-1]); pause < want*7/10 || pause > want*13/10 {
				t.Errorf("pause %d is %v, want about %v", i, pause, want)
			}
		}
	})
}

// A connection that is made while the health check changes has one check, the latest.
func TestHealthCheckChangesWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, "round_robin", nil)
		for i := range 500 {
			c.Network.Set("a:1", lbtest.Silent)
			synctest.Wait()
			service := fmt.Sprint(i)
			c.Network.Set("a:1", lbtest.Up)
			c.configure(&xdsresource.HealthCheck{Service: service})
			synctest.Wait()
			if got := c.a.Open(); !slices.Equal(got, []string{service}) {
				t.Fatalf("round %d: open streams ask for %q", i, got)
			}
		}
	})
}
