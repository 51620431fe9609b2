package e2e_test

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// dpdsAuthority is another authority than that of the resources that its DPDS resource
// is for.
const dpdsAuthority = "dpds.example.com"

var dpdsElsewhere = in(dpdsAuthority, dynparam.MapTypeURL, "map")

// apart are the servers of TP2, "Non-Cacheability of DPDS": a caching one for most
// resources, and the authoritative one that has the DPDS resource "by using a
// different authority in the DPDS resource name".
type apart struct{ cache, origin *mesh }

func newApart(t *testing.T) apart {
	t.Helper()
	// The origin is asked by name alone, and needs no feature for that.
	return apart{newVariantMesh(t), newMesh(t, "fail_on_data_errors")}
}

// dial opens a channel to the service of the authority.
func (a apart) dial() *grpc.ClientConn {
	a.cache.t.Helper()
	authority := func(m *mesh, fields map[string]any) map[string]any {
		fields["xds_servers"] = []map[string]any{{
			"server_uri": m.Addr(), "channel_creds": []map[string]any{{"type": "insecure"}}, "server_features": m.features,
		}}
		return fields
	}
	return dialWith(a.cache.t, tp2Target, a.cache.bootstrap(
		testutils.Authority(tp2, "", authority(a.cache, map[string]any{"dynamic_parameter_constraints_resource": dpdsElsewhere})),
		testutils.Authority(dpdsAuthority, "", authority(a.origin, map[string]any{}))))
}

// serve puts routes to direct and to proxy into the cache. A client without constraints
// gets those to direct.
func (a apart) serve() (direct, proxy *testutils.Backend) {
	m := a.cache
	m.t.Helper()
	all := backends(m.t, "direct", "proxy")
	m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes))
	for i, useProxy := range []string{"false", "true"} {
		m.set(clusterOf(all[i].ID(), all[i])...)
		m.SetVariant(m.t, map[string]string{"use_proxy": useProxy}, routesTo(tp2Routes, all[i].ID()))
	}
	return all[0], all[1]
}

// useProxy sets the DPDS resource.
func (a apart) useProxy(value string) {
	a.origin.t.Helper()
	c := constrain(a.origin.t, routesURL, is("use_proxy", value))
	a.origin.SetDPDS(a.origin.t, dpdsElsewhere, func(*corepb.Node) (dynparam.ByType, error) { return c, nil })
}

// TP2, "Non-Cacheability of DPDS" and "Server-Specified Constraints": the DPDS resource
// of another authority comes from that one's server, and before anything else is asked
// of the cache. Its updates move RPCs, and none fails.
func TestDPDSOfAnotherAuthority(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		t.Parallel()
		a := newApart(t)
		direct, proxy := a.serve()
		a.useProxy("true")
		answer := a.origin.StallSends()
		cc := a.dial()
		cc.Connect()
		a.origin.MustWait(testutils.Context(t), t, asks(dynparam.MapTypeURL, dpdsElsewhere))
		if early := a.cache.Requests(); len(early) > 0 {
			t.Errorf("the cache was asked before DPDS has answered: %v", early)
		}
		answer()
		mustReach(t, cc, unary, proxy)
		l := startLoad(t, cc)
		l.await(t, proxy)
		a.useProxy("false")
		l.await(t, direct)
		a.origin.Stop() // what DPDS has said stays
		l.await(t, direct)
		l.stop(t)
		for _, r := range a.cache.Requests() {
			if r.TypeURL == dynparam.MapTypeURL {
				t.Errorf("the cache was asked for a resource that is not cacheable: %v", r)
			}
		}
		for _, r := range a.origin.Requests() {
			if r.TypeURL != dynparam.MapTypeURL {
				t.Errorf("the origin was asked for what the cache has: %v", r)
			}
		}
	})
}

// TP2, "Server-Specified Constraints": "if the client cannot obtain the configured DPDS
// resource, it will ignore the failure and request the remaining resources with no
// additional constraints". When it can be had, RPCs move, and none fails.
func TestDPDSCannotBeObtained(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		t.Parallel()
		failing := func(st *status.Status) func(*mesh) {
			return func(m *mesh) {
				m.Update(m.t, func(tx *controlplane.Tx) { tx.SetError(dynparam.MapTypeURL, dpdsElsewhere, st) })
			}
		}
		for _, test := range []struct {
			name  string
			given func(origin *mesh)
			// cured has the server be as it should, but for the resource.
			cured func(origin *mesh)
		}{
			{"its server is unreachable", (*mesh).stop, (*mesh).restart},
			{"its server refuses streams", func(m *mesh) { m.RefuseStreams(status.Error(codes.Unauthenticated, "who are you?")) }, func(m *mesh) { m.RefuseStreams(nil) }},
			{"NOT_FOUND", failing(status.New(codes.NotFound, "no such resource")), nil},
			{"PERMISSION_DENIED", failing(status.New(codes.PermissionDenied, "not for you")), nil},
			{"PERMISSION_DENIED by the function", func(m *mesh) {
				m.SetDPDS(m.t, dpdsElsewhere, func(*corepb.Node) (dynparam.ByType, error) {
					return dynparam.ByType{}, status.Error(codes.PermissionDenied, "not for you")
				})
			}, nil},
			{"garbage", func(m *mesh) {
				m.Update(m.t, func(tx *controlplane.Tx) {
					tx.SetNamed(dpdsElsewhere, &anypb.Any{TypeUrl: dynparam.MapTypeURL, Value: []byte("\xff\xff")})
				})
			}, nil},
			{"silence until the resource timer", (*mesh).keepSilent, nil},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				a := newApart(t)
				direct, proxy := a.serve()
				test.given(a.origin)
				cc := a.dial()
				mustReach(t, cc, unary, direct)
				for _, r := range a.cache.Requests() {
					for _, l := range append(r.Locators, r.SubscribeLocators...) {
						if !l.Constraints.IsZero() {
							t.Errorf("%s was asked for with %v, want no constraints", l.Name, l.Constraints)
						}
					}
				}
				l := startLoad(t, cc)
				l.await(t, direct)
				a.useProxy("true")
				if test.cured != nil {
					test.cured(a.origin)
				}
				l.await(t, proxy)
				l.stop(t)
			})
		}
	})
}

func (m *mesh) stop() { m.Stop() }

func (m *mesh) restart() {
	m.t.Helper()
	if err := m.Restart(); err != nil {
		m.t.Fatal(err)
	}
}
