package meshroute

import (
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

func exactSAN(name string) []*matcherpb.StringMatcher {
	return []*matcherpb.StringMatcher{{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: name}}}
}

func securedService(t *TLS) *Service {
	s := service("s", map[string]string{"version": "v1"})
	s.TLS = t
	return s
}

// equalContext compares the TLS context in a transport socket, nil for none.
func equalContext[M proto.Message](t *testing.T, what string, want M, socket *corepb.TransportSocket) {
	t.Helper()
	got := want
	if socket != nil {
		got = want.ProtoReflect().New().Interface().(M)
		xdstest.NoError(t, socket.GetTypedConfig().UnmarshalTo(got))
	} else if want.ProtoReflect().IsValid() {
		t.Errorf("%s has no transport socket, want one with %v", what, want)
	}
	policytest.Equal(t, what, want, got, protocmp.Transform())
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
		{"mutual", &TLS{Identity: "id", Roots: "ca", SANs: exactSAN("a")}, xdsmsg.UpstreamTLS("id", "ca", "a")},
		{"simple", &TLS{Mode: TLSSimple, Identity: "id", Roots: "ca"}, xdsmsg.UpstreamTLS("", "ca")},
		{"off", &TLS{Mode: TLSOff, Identity: "id", Roots: "ca"}, nil},
		{"system", &TLS{Mode: TLSSimple, SANs: exactSAN("a"), SNI: "a.example.com"}, sni},
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
				equalContext(t, c.GetName(), test.want, c.GetTransportSocket())
			}
			policytest.Equal(t, "Clusters", []string{"s", "s;version=v1"}, names)
		})
	}
}

// A change of TLS alone is a change of the Clusters.
func TestTLS_Changes(t *testing.T) {
	t.Parallel()
	first := mustBuild(t, Input{Services: []*Service{securedService(nil)}}, nil)
	second := mustBuild(t, Input{Services: []*Service{securedService(&TLS{Mode: TLSSimple, Roots: "ca"})}}, first)
	third := mustBuild(t, Input{Services: []*Service{securedService(&TLS{Mode: TLSSimple, Roots: "ca"})}}, second)
	if changed, _ := second.Changes(first); len(changed) == 0 {
		t.Error("TLS is no change")
	}
	if changed, _ := third.Changes(second); len(changed) > 0 {
		t.Errorf("equal TLS changed %v", changed)
	}
}

// gRFC A36: servers get a Listener with the security that their clients expect.
func TestTLS_OfServers(t *testing.T) {
	t.Parallel()
	mutual := &tlspb.DownstreamTlsContext{
		RequireClientCertificate: wrapperspb.Bool(true),
		CommonTlsContext: &tlspb.CommonTlsContext{
			TlsCertificateProviderInstance: instance("id"),
			ValidationContextType: &tlspb.CommonTlsContext_ValidationContext{ValidationContext: &tlspb.CertificateValidationContext{
				CaCertificateProviderInstance: instance("ca"),
			}},
		},
	}
	simple := &tlspb.DownstreamTlsContext{CommonTlsContext: &tlspb.CommonTlsContext{TlsCertificateProviderInstance: instance("id")}}
	for _, test := range []struct {
		name  string
		tls   *TLS
		names []string
		want  *tlspb.DownstreamTlsContext
	}{
		{"no TLS", nil, nil, nil},
		{"off", &TLS{Mode: TLSOff}, []string{"grpc/server/10.0.0.1:80", "grpc/server/[2001:db8::1]:80"}, nil},
		{"mutual", &TLS{Identity: "id", Roots: "ca"}, []string{"grpc/server/10.0.0.1:80", "grpc/server/[2001:db8::1]:80"}, mutual},
		{"simple", &TLS{Mode: TLSSimple, Identity: "id", SANs: exactSAN("a")}, []string{"grpc/server/10.0.0.1:80", "grpc/server/[2001:db8::1]:80"}, simple},
		{"without roots for clients", &TLS{Identity: "id", SANs: exactSAN("a")}, nil, nil},
		{"without a certificate", &TLS{Mode: TLSSimple, Roots: "ca"}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := securedService(test.tls)
			s.Endpoints = append(s.Endpoints, Endpoint{Address: "[2001:db8::1]:80"}, Endpoint{Address: "name:80"})
			var names []string
			for _, r := range accepted(t, Input{Services: []*Service{s}}, nil).Resources() {
				l, ok := r.Message.(*listenerpb.Listener)
				if !ok || l.GetApiListener() != nil {
					continue
				}
				names = append(names, r.Name)
				equalContext(t, r.Name, test.want, l.GetFilterChains()[0].GetTransportSocket())
			}
			policytest.Equal(t, "Listeners", test.names, names)
		})
	}
}

// A server of several services has one Listener, which stays when one of them leaves it. Services
// that disagree on its security are a fault.
func TestTLS_OfSharedServers(t *testing.T) {
	t.Parallel()
	secured := func(name string, tls *TLS) *Service {
		s := service(name)
		s.TLS = tls
		return s
	}
	mutual, simple := &TLS{Identity: "id", Roots: "ca"}, &TLS{Mode: TLSSimple, Identity: "id", Roots: "ca"}
	build := func(previous *Mesh, services ...*Service) *Mesh {
		return mustBuild(t, Input{Services: services}, previous)
	}
	const name = "grpc/server/10.0.0.1:80"
	listenerOf := func(list []*Resource) (found *Resource) {
		for _, r := range list {
			if r.Name == name {
				found = r
			}
		}
		return found
	}

	both := build(nil, secured("a", mutual), secured("b", mutual))
	one := build(both, secured("b", mutual))
	changed, removed := one.Changes(both)
	if l := listenerOf(append(changed, removed...)); l != nil || listenerOf(one.Resources()) == nil {
		t.Errorf("when a left the server, its Listener changed: %v", l)
	}
	other := build(one, secured("b", simple))
	if changed, removed = other.Changes(one); listenerOf(changed) == nil || listenerOf(removed) != nil {
		t.Errorf("another mode changed %v, and removed %v", changed, removed)
	}
	none := build(other, secured("b", nil))
	if changed, removed = none.Changes(other); listenerOf(changed) != nil || listenerOf(removed) == nil {
		t.Errorf("no TLS changed %v, and removed %v", changed, removed)
	}

	_, err := Build(Input{Services: []*Service{secured("a", mutual), secured("b", simple)}}, nil)
	const want = "services.yaml:1: endpoints[0].address: service b: the server at 10.0.0.1:80 has another tls by service a (services.yaml:1); make mode and providers equal"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}

func TestTLS_Faults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tls  TLS
		want string
	}{
		{TLS{Roots: "ca"}, "services.yaml:1: tls.providers.identity: service s: clients have to present a certificate"},
		{TLS{Mode: TLSSimple}, "services.yaml:1: tls.subjectAltNames: service s: any site with a public certificate would be accepted"},
		{TLS{Mode: TLSSimple, Roots: "ca", SNI: strings.Repeat("a", 256)}, "services.yaml:1: tls.sni: service s: the server name has 256 characters, more than 255"},
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
		{&TLS{Mode: TLSSimple, Roots: "ca", SANs: exactSAN("a")}, []string{"note: tls: Envoy has none of"}},
		{&TLS{Mode: TLSSimple, Roots: "ca"}, []string{"note: tls: Envoy has none of", "warning: tls: without subjectAltNames clients accept every certificate of the roots"}},
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
