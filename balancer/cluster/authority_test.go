package cluster_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
)

// gRFC A81, "xds_cluster_impl LB Policy Changes".
func TestPicksSetTheAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		l := at("a", 0, "a:1")
		l.Endpoints[0].Hostname = "a.example"
		pick := func(extra *decision.Extra) []string {
			d := &decision.Decision{Context: context.Background(), Extra: extra}
			for {
				updates := f.cc.Updates()
				result, err := f.cc.State().Picker.Pick(balancer.PickInfo{Ctx: d})
				if err == nil {
					return result.Metadata[":authority"]
				}
				if synctest.Wait(); f.cc.Updates() == updates {
					t.Fatal(err)
				}
			}
		}
		f.update(sticky(0, l))
		for _, tc := range []struct {
			name  string
			extra *decision.Extra
			want  []string
		}{
			{"not asked for", &decision.Extra{Authority: "route"}, nil},
			{"asked for", &decision.Extra{AutoHost: true, Authority: "route"}, []string{"a.example"}},
			{"asked for, in a session", &decision.Extra{AutoHost: true, HostOverride: &httpfilter.HostOverride{Addresses: []string{"a:1"}}}, []string{"a.example"}},
		} {
			if got := pick(tc.extra); !slices.Equal(got, tc.want) {
				t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
			}
		}
		before := f.pickSubConn(t)
		l = at("a", 0, "a:1")
		l.Endpoints[0].Hostname = "b.example"
		f.update(sticky(0, l))
		if got := pick(&decision.Extra{AutoHost: true}); !slices.Equal(got, []string{"b.example"}) || f.pickSubConn(t) != before {
			t.Errorf("another hostname: %q, on the same connection: %v", got, f.pickSubConn(t) == before)
		}
		f.update(sticky(0, at("a", 0, "a:1")))
		if got := pick(&decision.Extra{AutoHost: true, Authority: "route"}); !slices.Equal(got, []string{"route"}) {
			t.Errorf("an endpoint without hostname: %q", got)
		}
	})
}
