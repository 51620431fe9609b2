package meshroute

import (
	"strings"
	"testing"

	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

func exactSAN(name string) []*matcherpb.StringMatcher {
	return []*matcherpb.StringMatcher{{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: name}}}
}

func securedService(t *TLS) *Service {
	s := service("s", map[string]string{"version": "v1"})
	s.TLS = t
	return s
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
