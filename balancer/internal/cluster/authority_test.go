package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// gRFC A81, "xds_cluster_impl LB Policy Changes": the picker sets the authority to
// the hostname of the endpoint, for RPCs of routes with auto_host_rewrite and
// endpoints with a hostname. A hostname changes without a new connection.
func TestAuthorityOfTheEndpoint(t *testing.T) {
	t.Parallel()
	endpoint := func(hostname string) xdsresource.Locality {
		l := at("a", 0, "a:1")
		l.Endpoints[0].Hostname = hostname
		l.Endpoints[0].Additional = []string{"a:2"}
		return l
	}
	for _, policy := range []string{"round_robin", "pick_first", xdsresource.PolicyRingHash} {
		t.Run(policy, subtest(func(t *testing.T, f *fixture) {
			f.update(by(policy, "", endpoint("first")))
			f.CC.Pick(&decision.Decision{Context: context.Background()})
			synctest.Wait()
			pick := func(extra *decision.Extra) balancer.PickResult {
				t.Helper()
				if extra != nil {
					extra.RPC = new(counting)
				}
				result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: &decision.Decision{Context: context.Background(), Extra: extra}})
				xdstest.NoError(t, err)
				result.Done(balancer.DoneInfo{})
				return result
			}
			connected := pick(nil).SubConn
			for _, tc := range []struct {
				when     string
				hostname string
				extra    *decision.Extra
				want     []string
			}{
				{"it is asked for", "first", &decision.Extra{AutoHost: true, Authority: "route"}, []string{"first"}},
				{"it is not asked for", "first", new(decision.Extra), nil},
				{"the RPC has nothing but a cluster", "first", nil, nil},
				{"it changes", "second", &decision.Extra{AutoHost: true}, []string{"second"}},
				{"there is none", "", &decision.Extra{AutoHost: true}, nil},
				{"there is none and the route has another one", "", &decision.Extra{AutoHost: true, Authority: "route"}, []string{"route"}},
			} {
				f.update(by(policy, "", endpoint(tc.hostname)))
				synctest.Wait()
				result := pick(tc.extra)
				xdstest.Equal(t, fmt.Sprintf("when %s: authority", tc.when),
					tc.want, result.Metadata[":authority"])
				if result.SubConn != connected {
					t.Errorf("when %s: the endpoint was connected again", tc.when)
				}
			}
		}))
	}
	// An RPC that reaches the endpoint at its other address has the same authority.
	t.Run("further addresses", subtest(func(t *testing.T, f *fixture) {
		f.Network.Set("a:1", lbtest.Refused)
		f.update(by("round_robin", "", endpoint("first")))
		f.Expect("the second address is up", "a:2")
		info := balancer.PickInfo{Ctx: &decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: new(counting), AutoHost: true}}}
		result, err := f.CC.State().Picker.Pick(info)
		xdstest.NoError(t, err)
		result.Done(balancer.DoneInfo{})
		xdstest.Equal(t, "authority", []string{"first"}, result.Metadata[":authority"])
	}))
}
