package leaf_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// The error of a pick names the endpoint, once, whatever gRPC's own error says: the error of a handshake has no address.
func TestErrorsNameTheEndpoint(t *testing.T) {
	t.Parallel()
	for name, reach := range map[string]lbtest.Reach{"an error with the address": lbtest.Refused, "one without": lbtest.Mute} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChecked(t, "round_robin", nil)
				c.Network.Set("a:1", reach)
				c.Network.Set("b:1", reach)
				synctest.Wait()
				c.ExpectState("nothing works", connectivity.TransientFailure)
				if _, err := c.CC.Pick(t.Context()); err == nil || strings.Count(err.Error(), ":1") != 1 {
					t.Errorf("error %v, want one with one address", err)
				}
			})
		})
	}
}

// An endpoint that has never been READY gets advice about TLS once several attempts in a row have ended before it spoke. One that was
// READY restarts.
func TestAdviceAboutTLS(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"never READY": false, "a restart": true} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := lbtest.NewFixture(t, func(env *tree.Env, changed func()) *leaf.Policy {
					env.TLS = clustertls.NewPool(false, nil, nil)
					return leaf.New(env, "round_robin", leaf.ForLocality, changed)
				})
				if !restarts {
					f.Network.Set("a:1", lbtest.Mute)
				}
				f.Update(func() { f.Policy.Update([]xdsresource.Endpoint{endpoint("a:1", 1, 0)}, "") })
				f.Network.Set("a:1", lbtest.Mute)
				for attempt := 1; attempt <= 6; attempt++ {
					synctest.Wait()
					f.ExpectState("it ends connections", connectivity.TransientFailure)
					_, err := f.CC.Pick(t.Context())
					if err == nil {
						t.Fatal("a pick succeeded")
					}
					advised := strings.Contains(err.Error(), "wants TLS")
					if want := !restarts && attempt >= 3; advised != want {
						t.Errorf("attempt %d: error %v, want advice: %t", attempt, err, want)
					}
					time.Sleep(lbtest.Backoff)
				}
			})
		})
	}
}
