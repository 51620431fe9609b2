package leaf_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// The error of a pick names the endpoint, once, whatever gRPC's own error says: that of a handshake has no address.
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
