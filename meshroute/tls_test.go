package meshroute

import (
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/internal/meshpolicy/policytest"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

func exactSAN(name string) []*matcherpb.StringMatcher {
	return []*matcherpb.StringMatcher{{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: name}}}
}

func securedService(t *TLS) *Service {
	s := service("s", map[string]string{"version": "v1"})
	s.TLS = t
	return s
}

// gRFC A29: the Clusters of a service and of its subsets have the same UpstreamTlsContext, which
// clients accept.
func TestTLS_OfEveryCluster(t *testing.T) {
	t.Parallel()
	sni := xdsmsg.UpstreamTLS("", "", "a")
	sni.Sni = "a.example.com"
	for _, test := range []struct {
		name string
		tls  *TLS
		want *tlspb.UpstreamTlsContext
	}{
		{"none", nil, nil},
		{"mutual", &TLS{Mutual: true, Identity: "id", Roots: "ca", SANs: exactSAN("a")}, xdsmsg.UpstreamTLS("id", "ca", "a")},
		{"simple", &TLS{Identity: "id", Roots: "ca"}, xdsmsg.UpstreamTLS("", "ca")},
		{"system", &TLS{SANs: exactSAN("a"), SNI: "a.example.com"}, sni},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			split := policytest.New("p", TargetRef{}, policytest.To("s", meshpolicy.Rule{BackendRefs: []meshpolicy.BackendRef{
				{Name: "s", Tags: map[string]string{"version": "v1"}, Weight: 1},
			}}))
			m := accepted(t, Input{Services: []*Service{securedService(test.tls)}, Policies: []*Policy{split}}, nil)
			var names []string
			for _, r := range m.Resources() {
				c, ok := r.Message.(*clusterpb.Cluster)
				if !ok {
					continue
				}
				names = append(names, c.GetName())
				var got *tlspb.UpstreamTlsContext
				if c.GetTransportSocket() != nil {
					got = new(tlspb.UpstreamTlsContext)
					if err := c.GetTransportSocket().GetTypedConfig().UnmarshalTo(got); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.GetName(), diff)
				}
			}
			if diff := cmp.Diff([]string{"s", "s;version=v1"}, names); diff != "" {
				t.Errorf("clusters (-want +got):\n%s", diff)
			}
		})
	}
}

// A change of TLS alone is a change of the Clusters.
func TestTLS_Changes(t *testing.T) {
	t.Parallel()
	first := mustBuild(t, Input{Services: []*Service{securedService(nil)}}, nil)
	second := mustBuild(t, Input{Services: []*Service{securedService(&TLS{Roots: "ca"})}}, first)
	third := mustBuild(t, Input{Services: []*Service{securedService(&TLS{Roots: "ca"})}}, second)
	if changed, _ := second.Changes(first); len(changed) == 0 {
		t.Error("TLS is no change")
	}
	if changed, _ := third.Changes(second); len(changed) > 0 {
		t.Errorf("equal TLS changed %v", changed)
	}
}

func TestTLS_Faults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tls  TLS
		want string
	}{
		{TLS{Mutual: true, Roots: "ca"}, "services.yaml:1: tls.providers.identity: service s: clients have to present a certificate"},
		{TLS{}, "services.yaml:1: tls.subjectAltNames: service s: any site with a public certificate would be accepted"},
		{TLS{Roots: "ca", SNI: strings.Repeat("a", 256)}, "services.yaml:1: tls.sni: service s: the server name has 256 characters, more than 255"},
	} {
		_, err := Build(Input{Services: []*Service{securedService(&test.tls)}}, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got error %v, want %q", &test.tls, err, test.want)
		}
	}
}

func TestTLS_Reports(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tls  *TLS
		want []string
	}{
		{&TLS{Roots: "ca", SANs: exactSAN("a")}, []string{"note: tls: Envoy has none of"}},
		{&TLS{Roots: "ca"}, []string{"note: tls: Envoy has none of", "warning: tls: without subjectAltNames clients accept every certificate of the roots"}},
	} {
		reports := mustBuild(t, Input{Services: []*Service{securedService(test.tls)}}, nil).Reports()
		if len(reports) != len(test.want) {
			t.Errorf("reports %v, want %d", reports, len(test.want))
			continue
		}
		for i, want := range test.want {
			if got := reports[i].String(); !strings.HasPrefix(got, "services.yaml:1: "+want) {
				t.Errorf("report %q, want %q", got, want)
			}
		}
	}
}
