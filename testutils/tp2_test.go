package testutils_test

import (
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// DPDS in xRFC TP2 (2021-08). Its other worked examples are in testdata/tp2.txt.

const (
	srds     = typeurl.Prefix + "envoy.config.route.v3.ScopedRouteConfiguration"
	dpdsName = "xdstp://xds.example.com/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/x"
)

// "Sharding Endpoints" and "Selecting Cluster Based on ACL": DPDS decides by the node which variant a client asks for.
func TestTP2_ConstraintsFromDPDS(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		useProxy := map[string]string{"friend": "false", "other": "true"}
		s.Update(t, func(tx *testutils.Tx) {
			tx.SetDPDS(dpdsName, func(node *corepb.Node) (dynparam.ByType, error) {
				value, ok := useProxy[node.GetId()]
				if !ok {
					return dynparam.ByType{}, status.Errorf(codes.PermissionDenied, "who is %s?", node.GetId())
				}
				return dynparam.NewByType(map[string]dynparam.Constraints{typeurl.Name(rds): xdstest.Constraints("use_proxy=" + value)})
			})
			put(tx, rds, "r use_proxy=true", "via proxy")
			put(tx, rds, "r use_proxy=false", "direct")
		})
		for node, want := range map[string]string{"friend": "r {use_proxy=false}: direct", "other": "r {use_proxy=true}: via proxy"} {
			p := open()
			p.byLocators = true
			p.node = &corepb.Node{Id: node}
			p.subscribe(dynparam.MapTypeURL, dpdsName)
			p.subscribe(rds, "r use_proxy="+p.learn(rds))
			p.expect(node, rds, want)
		}
		p := open()
		p.byLocators = true
		p.subscribe(dynparam.MapTypeURL, dpdsName)
		p.expect("a stranger", dynparam.MapTypeURL, "!"+dpdsName+" {}: PermissionDenied who is n?")
		s.Update(t, func(*testutils.Tx) { useProxy["n"] = "true" })
		xdstest.Equal(t, "what the stranger is told of use_proxy", "true", p.learn(rds))
	})
}

// learn returns the value of use_proxy that the next response has for a type.
func (p *peer) learn(typeURL string) string {
	p.t.Helper()
	gotType, items := p.next()
	name, body, ok := strings.Cut(items[0], ": ")
	if gotType != dynparam.MapTypeURL || name != dpdsName+" (not cached)" || !ok {
		p.t.Fatalf("got %s %q", gotType, items)
	}
	return learned(p.t, body, typeURL)
}

func learned(t *testing.T, body, typeURL string) string {
	t.Helper()
	m, err := dynwire.UnmarshalMap(anyOf(dynparam.MapTypeURL, body))
	xdstest.NoError(t, err)
	constraints, err := dynparam.ByTypeFromProto(m)
	xdstest.NoError(t, err)
	parameters, ok := constraints.For(typeURL).Parameters()
	if !ok {
		t.Fatalf("the constraints are %v", constraints.For(typeURL))
	}
	return parameters.Map()["use_proxy"]
}
