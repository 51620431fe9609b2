package relay_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/relay"
)

func TestParseAccess(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[]`:                                          "there is no rule",
		`[{"names": ["a"]}]`:                          "either san or token",
		`[{"san": "a", "token": "b"}]`:                "either san or token",
		`[{"san": "a"}]`:                              "[0].names: empty",
		`[{"san": "*", "names": ["a"]}]`:              "every certificate",
		`[{"san": "a", "names": ["a"]}, {}]`:          "[1]",
		`[{"token": "t", "names": ["a", null]}]`:      `[0].names[1]: expected a prefix ("" stands for all names), found null`,
		`[{"token": "t", "names": ["xdstp://shop"]}]`: `needs "/" behind the authority`,
		`[{"token": "t", "names": [""]}] trail`:       "not JSON: line 1, column 33: ",
		`[{"token": "t", "names": [""]}]]`:            "not JSON: line 1, column 32: ",
		"[\n{\"token\": \"t\" \"names\": [\"\"]}]":    "not JSON: line 2, column 15: ",
		``:                                              "not JSON: line 1, column 1: ",
		`{"token": "t", "names": ["a"]}`:                "expected a list of rules, found an object",
		`[1, {"token": 2, "names": ["a"]}]`:             "[0]: expected an object, found a number\n  [1].token: expected a string, found a number",
		`[{"token": "t", "names": "a b"}]`:              "[0].names: expected a list, found a string",
		`[{"token": "t", "names": [["a"]]}]`:            `[0].names[0]: expected a prefix ("" stands for all names), found a list`,
		`[{"name": "t"}, {"x": 1}]`:                     `[0]: unknown field "name"; the fields are san, token and names` + "\n  [0]: needs",
		`[{"token": "t", "names": ["shop.*"]}]`:         `[0].names[0]: "shop.*" ends with "*", but names are prefixes; leave it out`,
		`[{"token": "t", "names": ["*"]}]`:              `[0].names[0]: "*" ends with`,
		`[{"token": "t", "token": "u", "names": [""]}]`: "[0].token: expected the key once, found it again",
	} {
		_, err := relay.ParseAccess([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "relay.") {
			t.Errorf("%s: %v names what is not the user's", text, err)
		}
	}
}

// streamTo opens a delta stream with credentials and metadata.
func streamTo(t *testing.T, r *rig, addr string, creds credentials.TransportCredentials, md ...string) *deltaStream {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(r.ctx, md...)
	return openWith[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](ctx, t, addr, "DeltaAggregatedResources", creds)
}

// A client gets the names that the rules for its certificate or its token give it, and a denial for
// others, which do not reach the control plane.
func TestAccess(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	access, err := relay.ParseAccess([]byte(`[
		{"san": "spiffe://mesh/shop/*", "names": ["shop."]},
		{"token": "secret", "names": ["bank.", "shop."]}]`))
	xdstest.NoError(t, err)
	r := newRig(t, func(o *relay.Options) { o.Access = access }, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("shop.c", ""), xdsmsg.EDSCluster("bank.c", ""))
	secure := r.serve(r.Relay, grpc.Creds(credentials.NewTLS(ca.ServerConfig())))
	as := func(id string) credentials.TransportCredentials {
		uri, err := url.Parse(id)
		xdstest.NoError(t, err)
		config := ca.ClientConfig(false)
		config.Certificates = []tls.Certificate{ca.Pair(&x509.Certificate{URIs: []*url.URL{uri}})}
		return credentials.NewTLS(config)
	}
	for name, test := range map[string]struct {
		stream *deltaStream
		may    map[string]bool
	}{
		"by certificate":       {streamTo(t, r, secure, as("spiffe://mesh/shop/frontend")), map[string]bool{"shop.c": true, "bank.c": false}},
		"by another":           {streamTo(t, r, secure, as("spiffe://mesh/other")), map[string]bool{"shop.c": false, "bank.c": false}},
		"by token":             {streamTo(t, r, r.addr, insecure.NewCredentials(), "authorization", "Bearer secret"), map[string]bool{"shop.c": true, "bank.c": true}},
		"by a token that ends": {streamTo(t, r, r.addr, insecure.NewCredentials(), "authorization", "Bearer secre"), map[string]bool{"shop.c": false, "bank.c": false}},
		"by nothing":           {streamTo(t, r, r.addr, insecure.NewCredentials()), map[string]bool{"shop.c": false, "bank.c": false}},
	} {
		subscribe(test.stream, node(name), clusterType, "shop.c", "bank.c")
		got := map[string]bool{}
		for len(got) < 2 {
			resp := test.stream.receive()
			for _, res := range resp.GetResources() {
				got[res.GetName()] = true
			}
			for _, e := range resp.GetResourceErrors() {
				if codes.Code(e.GetErrorDetail().GetCode()) != codes.PermissionDenied || !strings.Contains(e.GetErrorDetail().GetMessage(), "--access") {
					t.Errorf("%s: got %v, want a denial", name, e)
				}
				got[e.GetResourceName().GetName()] = false
			}
		}
		for resource, may := range test.may {
			if got[resource] != may {
				t.Errorf("%s got %s: %t, want %t", name, resource, got[resource], may)
			}
		}
	}
	if got := r.up.Attempts(); got != 1 {
		t.Errorf("got %d streams upstream, want one", got)
	}
}
