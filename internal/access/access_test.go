package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/access"
)

func TestParse(t *testing.T) {
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
		`[{"name": "t"}, {"x": 1}]`:                     `[0]: unknown field "name"; the fields are san, token, node and names` + "\n  [0]: needs",
		`[{"token": "t", "names": ["shop.*"]}]`:         `[0].names[0]: "shop.*" ends with "*", but names are prefixes; leave it out`,
		`[{"token": "t", "names": ["*"]}]`:              `[0].names[0]: "*" ends with`,
		`[{"token": "t", "token": "u", "names": [""]}]`: "[0].token: expected the key once, found it again",

		`[{"san": "a*b", "names": [""]}]`:                               `[0].san: "a*b": "*" may only be`,
		`[{"san": "a{}", "names": [""]}]`:                               "[0].san: a placeholder is a name in braces",
		`[{"san": "a{b", "names": [""]}]`:                               "[0].san: a placeholder is a name in braces",
		`[{"san": "{a}{b}", "names": [""]}]`:                            "[0].san: two placeholders need a text between them",
		`[{"san": "a", "names": [""], "node": {}}]`:                     "[0].node: needs id, cluster or metadata",
		`[{"san": "a", "names": [""], "node": 1}]`:                      "[0].node: expected an object, found a number",
		`[{"san": "a", "names": [""], "node": {"ids": "a"}}]`:           `unknown field "ids"; the fields are id, cluster and metadata`,
		`[{"san": "{a}", "names": [""], "node": {"id": "{b}"}}]`:        "[0].node.id: {b} is no placeholder; the placeholders are those of san",
		`[{"token": "{a}", "names": [""], "node": {"cluster": "{a}"}}]`: "[0].node.cluster: {a} is no placeholder",
		`[{"san": "a", "names": [""], "node": {"metadata": {"k": 1}}}]`: `[0].node.metadata["k"]: expected`,
		`[{"san": "a", "names": [""], "node": {"metadata": ["k"]}}]`:    "[0].node.metadata: expected an object, found a list",
	} {
		_, err := access.Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "relay.") {
			t.Errorf("%s: %v names what is not the user's", text, err)
		}
	}
}

// peerWith is a client at an address with a verified certificate, or with none.
func peerWith(t *testing.T, addr net.Addr, sans ...string) *peer.Peer {
	t.Helper()
	p := &peer.Peer{Addr: addr}
	if len(sans) == 0 {
		return p
	}
	cert := new(x509.Certificate)
	for _, san := range sans {
		if !strings.Contains(san, "/") {
			cert.DNSNames = append(cert.DNSNames, san)
			continue
		}
		uri, err := url.Parse(san)
		if err != nil {
			t.Fatal(err)
		}
		cert.URIs = append(cert.URIs, uri)
	}
	p.AuthInfo = credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}}
	return p
}

func node(id, cluster string, metadata ...string) *corepb.Node {
	n := &corepb.Node{Id: id, Cluster: cluster}
	for i := 0; i < len(metadata); i += 2 {
		if n.Metadata == nil {
			n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		n.Metadata.Fields[metadata[i]] = structpb.NewStringValue(metadata[i+1])
	}
	return n
}

// A client is the node that its certificate or token lets it be, or none.
func TestGrant(t *testing.T) {
	t.Parallel()
	rules, err := access.Parse([]byte(`[
		{"san": "spiffe://mesh/ns/{ns}/sa/{sa}", "names": ["shop."],
		 "node": {"id": "{sa}-*", "cluster": "{ns}", "metadata": {"service": "{sa}", "team": "{ns}/{sa}"}}},
		{"san": "spiffe://mesh/ns/bank/sa/{sa}", "names": ["bank."]},
		{"san": "{service}.example.com", "names": [""], "node": {"id": "{service}"}},
		{"san": "{a}-{b}-{a}.twice", "names": [""], "node": {"id": "{a}{b}"}},
		{"token": "secret", "names": ["token."], "node": {"cluster": "batch"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if !rules.NeedCertificates() {
		t.Error("rules by certificate need none")
	}
	const cart = "spiffe://mesh/ns/shop/sa/cart"
	full := node("cart-1", "shop", "service", "cart", "team", "shop/cart")
	for name, test := range map[string]struct {
		sans  []string
		token string
		node  *corepb.Node
		want  *corepb.Node
		// refused is a part of the error; may and not are names.
		refused, may, not string
	}{
		"all fields":              {sans: []string{cart}, node: full, want: full, may: "shop.a", not: "bank.a"},
		"fields are filled in":    {sans: []string{cart}, node: node("cart-1", ""), want: full, may: "shop.a"},
		"another id":              {sans: []string{cart}, node: node("bank-1", ""), refused: `node.id is "bank-1", and by its certificate or token this client is "cart-*"`},
		"an id that begins alike": {sans: []string{cart}, node: node("cartridge", ""), refused: "node.id"},
		"no id":                   {sans: []string{cart}, node: nil, refused: `node.id is ""`},
		"another cluster":         {sans: []string{cart}, node: node("cart-1", "bank"), refused: `node.cluster is "bank"`},
		"other metadata":          {sans: []string{cart}, node: node("cart-1", "", "service", "bank"), refused: `node.metadata.service is "bank"`},
		"metadata that is no text": {sans: []string{cart}, refused: "node.metadata.service", node: &corepb.Node{
			Id: "cart-1", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"service": structpb.NewBoolValue(true)}},
		}},
		"a rule for any node too": {sans: []string{"spiffe://mesh/ns/bank/sa/x"}, node: node("anything", ""), want: node("anything", ""), may: "bank.a", not: "shop.a"},
		"both rules":              {sans: []string{"spiffe://mesh/ns/bank/sa/x"}, node: node("x-1", ""), want: node("x-1", "bank", "service", "x", "team", "bank/x"), may: "shop.a", not: "other"},
		"another path":            {sans: []string{cart + "/more"}, node: full, want: full, not: "shop.a"},
		"a label of a DNS name":   {sans: []string{"a.example.com"}, node: node("a", ""), want: node("a", ""), may: "x"},
		"two labels":              {sans: []string{"a.b.example.com"}, node: node("a.b", ""), want: node("a.b", ""), not: "x"},
		"one of several names":    {sans: []string{"a.example.com", "b.example.com"}, node: node("b", ""), want: node("b", ""), may: "x"},
		"a placeholder twice":     {sans: []string{"x-y-x.twice"}, node: node("xy", ""), want: node("xy", ""), may: "x"},
		"twice, and not the same": {sans: []string{"x-y-z.twice"}, node: node("xy", ""), want: node("xy", ""), not: "x"},
		"by token":                {token: "secret", node: node("any", "batch"), want: node("any", "batch"), may: "token.a", not: "shop.a"},
		"by token, another node":  {token: "secret", node: node("any", "shop"), refused: "node.cluster"},
		"nobody":                  {node: full, want: full, not: "shop.a"},
	} {
		ctx := peer.NewContext(t.Context(), peerWith(t, nil, test.sans...))
		if test.token != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+test.token))
		}
		before := proto.CloneOf(test.node)
		grant, is, err := rules.Grant(ctx, test.node)
		if !proto.Equal(before, test.node) {
			t.Errorf("%s: the client's node was changed", name)
		}
		if test.refused != "" {
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: got %v, want a denial with %q", name, err, test.refused)
			}
			continue
		}
		if err != nil || !proto.Equal(is, test.want) {
			t.Errorf("%s: got the node %v, %v, want %v", name, is, err, test.want)
		}
		if test.may != "" && grant.Check(test.may) != nil {
			t.Errorf("%s may not have %q", name, test.may)
		}
		if test.not != "" && status.Code(grant.Check(test.not)) != codes.PermissionDenied {
			t.Errorf("%s may have %q", name, test.not)
		}
	}
	var none access.Rules
	if g, is, err := none.Grant(context.Background(), full); err != nil || is != full || !g.Everything() || g.Check("x") != nil {
		t.Errorf("without rules: %v, %v, %v", g, is, err)
	}
}

// Clients are one peer if they have one identity at one host.
func TestPeer(t *testing.T) {
	t.Parallel()
	tcp := func(addr string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	socket := &net.UnixAddr{Name: "@", Net: "unix"}
	for name, test := range map[string]struct {
		a, b *peer.Peer
		same bool
	}{
		"two ports":                  {peerWith(t, tcp("10.0.0.1:1")), peerWith(t, tcp("10.0.0.1:2")), true},
		"two hosts":                  {peerWith(t, tcp("10.0.0.1:1")), peerWith(t, tcp("10.0.0.2:1")), false},
		"one network of IPv6":        {peerWith(t, tcp("[2001:db8::1]:1")), peerWith(t, tcp("[2001:db8::2:1]:1")), true},
		"two networks of IPv6":       {peerWith(t, tcp("[2001:db8::1]:1")), peerWith(t, tcp("[2001:db8:0:1::1]:1")), false},
		"IPv4 in IPv6":               {peerWith(t, tcp("10.0.0.1:1")), peerWith(t, tcp("[::ffff:10.0.0.1]:1")), true},
		"two identities":             {peerWith(t, tcp("10.0.0.1:1"), "spiffe://a/b"), peerWith(t, tcp("10.0.0.1:2"), "spiffe://a/c"), false},
		"one identity":               {peerWith(t, tcp("10.0.0.1:1"), "spiffe://a/b"), peerWith(t, tcp("10.0.0.1:2"), "spiffe://a/b", "x.y"), true},
		"one identity, at two hosts": {peerWith(t, tcp("10.0.0.1:1"), "x.y"), peerWith(t, tcp("10.0.0.2:1"), "x.y"), false},
		"one connection of a socket": {peerWith(t, socket), peerWith(t, socket), true},
		"two connections":            {peerWith(t, socket), peerWith(t, &net.UnixAddr{Name: "@", Net: "unix"}), false},
		"nothing is known":           {nil, nil, true},
	} {
		if got := access.Peer(test.a) == access.Peer(test.b); got != test.same {
			t.Errorf("%s: %t, want %t: %q and %q", name, got, test.same, access.Peer(test.a), access.Peer(test.b))
		}
	}
}
