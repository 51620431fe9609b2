package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/url"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/access"
)

func TestParse(t *testing.T) {
	t.Parallel()
	// id is a rule for a SPIFFE ID, and nodeID one that requires an id of the node.
	id := func(san string) string { return `[{"san": "` + san + `", "names": [""]}]` }
	nodeID := func(want string) string {
		return `[{"san": "spiffe://a/{a}/{b}", "names": [""], "node": {"id": "` + want + `"}}]`
	}
	for text, want := range map[string]string{
		`[]`:                              "there is no rule",
		`[{"names": ["a"]}]`:              "[0].san: expected a SPIFFE ID",
		`[{"san": null, "names": ["a"]}]`: "[0].san: expected a SPIFFE ID",
		`[{"san": ["spiffe://a"], "names": [""]}]`:           "[0].san: expected a SPIFFE ID, found a list",
		`[{"san": "spiffe://a"}]`:                            "[0].names: empty",
		`[{"san": "spiffe://a", "names": ["a"]}, {}]`:        "[1]",
		`[{"san": "spiffe://a", "names": ["a", null]}]`:      `[0].names[1]: expected a prefix ("" stands for all names), found null`,
		`[{"san": "spiffe://a", "names": ["xdstp://shop"]}]`: `needs "/" behind the authority`,
		`[{"san": "spiffe://a", "names": [""]}] trail`:       "not JSON: line 1, column 40: ",
		`[{"san": "spiffe://a", "names": [""]}]]`:            "not JSON: line 1, column 39: ",
		"[\n{\"san\": \"t\" \"names\": [\"\"]}]":             "not JSON: line 2, column 13: ",
		``:                                                   "not JSON: line 1, column 1: ",
		`{"san": "spiffe://a", "names": ["a"]}`:              "expected a list of rules, found an object",
		`[1, {"san": 2, "names": ["a"]}]`:                    "[0]: expected an object, found a number\n  [1].san: expected a SPIFFE ID, found a number",
		`[{"san": "spiffe://a", "names": "a b"}]`:            "[0].names: expected a list, found a string",
		`[{"san": "spiffe://a", "names": [["a"]]}]`:          `[0].names[0]: expected a prefix ("" stands for all names), found a list`,
		`[{"token": "t", "names": [""]}]`:                    `[0]: unknown field "token"; the fields are san, node and names` + "\n  [0].san: expected",
		`[{"san": "spiffe://a", "names": ["shop.*"]}]`:       `[0].names[0]: "shop.*" ends with "*", but names are prefixes; leave it out`,
		`[{"san": "spiffe://a", "names": ["*"]}]`:            `[0].names[0]: "*" ends with`,
		`[{"san": "spiffe://a", "san": "u", "names": [""]}]`: "[0].san: expected the key once, found it again",

		id(""):                      `[0].san: "" is no SPIFFE ID; want spiffe://TRUST-DOMAIN/PATH`,
		id("*"):                     `[0].san: "*" is no SPIFFE ID`,
		id("a.example"):             `[0].san: "a.example" is no SPIFFE ID`,
		id("https://a/b"):           `[0].san: "https://a/b" is no SPIFFE ID`,
		id("spiffe://"):             `[0].san: "": trust domain`,
		id("spiffe://A/b"):          `[0].san: "A": trust domain`,
		id("spiffe://{a}/b"):        `[0].san: "{a}": trust domain`,
		id("spiffe://a/b*"):         `[0].san: "b*": `,
		id("spiffe://a/*"):          `[0].san: "*": `,
		id("spiffe://a/"):           `[0].san: "": `,
		id("spiffe://a//b"):         `[0].san: "": `,
		id("spiffe://a/.."):         `[0].san: "..": `,
		id("spiffe://a/{}"):         `[0].san: "{}": `,
		id("spiffe://a/{b"):         `[0].san: "{b": `,
		id("spiffe://a/b-{c}"):      `[0].san: "b-{c}": `,
		id("spiffe://a/{b}{c}"):     `[0].san: "{b}{c}": `,
		id("spiffe://a/{b}/sa/{b}"): "[0].san: the placeholder {b} is there twice",
		nodeID("a*b"):               `[0].node.id: "a*b": "*" may only be the last character`,
		nodeID("a}"):                `[0].node.id: "a}": "*" may only be`,
		nodeID("a{}"):               `[0].node.id: "a{}": "*" may only be the last character, and a placeholder is a name in braces`,
		nodeID("{a"):                `[0].node.id: "{a": "*" may only be the last character, and a placeholder is a name in braces`,
		nodeID("{c}"):               "[0].node.id: {c} is no placeholder of san",
		nodeID("*"):                 `[0].node.id: * needs a separator before it`,
		nodeID("shop*"):             `[0].node.id: * needs a separator before it`,
		nodeID("{a}*"):              `[0].node.id: * needs a separator before it`,
		nodeID("{a}{b}"):            `[0].node.id: {b} needs a separator before it, such as "/" or "-", without which`,
		nodeID("{a}x{b}"):           `[0].node.id: {b} needs a separator before it`,

		`[{"san": "spiffe://a", "names": [""], "node": {}}]`:                     "[0].node: needs id, cluster or metadata",
		`[{"san": "spiffe://a", "names": [""], "node": 1}]`:                      "[0].node: expected an object, found a number",
		`[{"san": "spiffe://a", "names": [""], "node": {"ids": "a"}}]`:           `unknown field "ids"; the fields are id, cluster and metadata`,
		`[{"san": "spiffe://a", "names": [""], "node": {"cluster": "{a}"}}]`:     "[0].node.cluster: {a} is no placeholder",
		`[{"san": "spiffe://a", "names": [""], "node": {"metadata": {"k": 1}}}]`: `[0].node.metadata["k"]: expected`,
		`[{"san": "spiffe://a", "names": [""], "node": {"metadata": ["k"]}}]`:    "[0].node.metadata: expected an object, found a list",
	} {
		_, err := access.Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", text, err, want)
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
	var names []byte // as they are in the certificate
	for _, san := range sans {
		const uriTag, dnsTag = 6, 2
		name := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: uriTag, Bytes: []byte(san)}
		if strings.Contains(san, "/") {
			uri, err := url.Parse(san)
			xdstest.NoError(t, err)
			cert.URIs = append(cert.URIs, uri)
		} else {
			name.Tag = dnsTag
			cert.DNSNames = append(cert.DNSNames, san)
		}
		raw, err := asn1.Marshal(name)
		xdstest.NoError(t, err)
		names = append(names, raw...)
	}
	all, err := asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: names})
	xdstest.NoError(t, err)
	cert.Extensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: all}}
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

// as is the context of the stream of a client with a verified certificate of these names.
func as(t *testing.T, sans ...string) context.Context {
	t.Helper()
	return peer.NewContext(t.Context(), peerWith(t, nil, sans...))
}

func parse(t *testing.T, text string) access.Rules {
	t.Helper()
	rules, err := access.Parse([]byte(text))
	xdstest.NoError(t, err)
	return rules
}

// A client is the node that its certificate lets it be, or none.
func TestGrant(t *testing.T) {
	t.Parallel()
	rules := parse(t, `[
		{"san": "spiffe://mesh/ns/{ns}/sa/{sa}", "names": ["shop."],
		 "node": {"id": "{sa}-*", "cluster": "{ns}", "metadata": {"service": "{sa}", "team": "{ns}/{sa}"}}},
		{"san": "spiffe://mesh/ns/bank/sa/{sa}", "names": ["bank."]},
		{"san": "spiffe://batch", "names": ["batch."], "node": {"cluster": "batch"}}]`)
	const cart = "spiffe://mesh/ns/shop/sa/cart"
	full := node("cart-1", "shop", "service", "cart", "team", "shop/cart")
	for name, test := range map[string]struct {
		sans []string
		node *corepb.Node
		want *corepb.Node
		// refused is a part of the error; may and not are names.
		refused, may, not string
	}{
		"all fields":              {sans: []string{cart}, node: full, want: full, may: "shop.a", not: "bank.a"},
		"fields are filled in":    {sans: []string{cart}, node: node("cart-1", ""), want: full, may: "shop.a"},
		"another id":              {sans: []string{cart}, node: node("bank-1", ""), refused: `node.id is "bank-1", and by its certificate this client is "cart-*"`},
		"an id that begins alike": {sans: []string{cart}, node: node("cartridge", ""), refused: "node.id"},
		"no id":                   {sans: []string{cart}, node: nil, refused: `node.id is ""`},
		"another cluster":         {sans: []string{cart}, node: node("cart-1", "bank"), refused: `node.cluster is "bank"`},
		"other metadata":          {sans: []string{cart}, node: node("cart-1", "", "service", "bank"), refused: `node.metadata.service is "bank"`},
		"metadata that is no text": {sans: []string{cart}, refused: "node.metadata.service", node: &corepb.Node{
			Id: "cart-1", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"service": structpb.NewBoolValue(true)}},
		}},
		"a rule for any node too": {sans: []string{"spiffe://mesh/ns/bank/sa/x"}, node: node("anything", ""), want: node("anything", ""), may: "bank.a", not: "shop.a"},
		"both rules":              {sans: []string{"spiffe://mesh/ns/bank/sa/x"}, node: node("x-1", ""), want: node("x-1", "bank", "service", "x", "team", "bank/x"), may: "shop.a", not: "other"},
		"no path":                 {sans: []string{"spiffe://batch"}, want: node("", "batch"), may: "batch.a", not: "shop.a"},
		"a longer path":           {sans: []string{cart + "/more"}, node: full, want: full, not: "shop.a"},
		"a shorter path":          {sans: []string{"spiffe://mesh/ns/shop/sa"}, node: full, want: full, not: "shop.a"},
		"another trust domain":    {sans: []string{"spiffe://other/ns/shop/sa/cart"}, node: full, want: full, not: "shop.a"},
		"a name beside the ID":    {sans: []string{cart, "a.example.com"}, node: full, want: full, may: "shop.a"},
		"two IDs":                 {sans: []string{cart, "spiffe://mesh/ns/bank/sa/x"}, node: full, want: full, not: "shop.a"},
		"an empty fragment":       {sans: []string{cart + "#"}, node: full, want: full, not: "shop.a"},
		"an empty query":          {sans: []string{cart + "?"}, node: full, want: full, not: "shop.a"},
		"the scheme in capitals":  {sans: []string{"SPIFFE" + cart[len("spiffe"):]}, node: full, want: full, may: "shop.a"},
		"no valid ID":             {sans: []string{"spiffe://mesh/ns/shop/sa/ca%72t"}, node: full, want: full, not: "shop.a"},
		"no ID":                   {sans: []string{"a.example.com"}, node: full, want: full, not: "shop.a"},
		"no certificate":          {node: full, want: full, not: "shop.a"},
	} {
		before := proto.CloneOf(test.node)
		grant, is, err := rules.Grant(as(t, test.sans...), test.node)
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
	if g, _, err := rules.Grant(context.Background(), full); err != nil || g.Everything() || g.Check("shop.a") == nil {
		t.Errorf("a client of which nothing is known: %v, %v", g, err)
	}
	var none access.Rules
	if g, is, err := none.Grant(context.Background(), full); err != nil || is != full || !g.Everything() || g.Check("x") != nil {
		t.Errorf("without rules: %v, %v, %v", g, is, err)
	}
}

// Every rule that gives a client names allows the node that the client is, also if several rules fill in what it leaves out.
func TestGrant_SeveralRules(t *testing.T) {
	t.Parallel()
	rules := parse(t, `[
		{"san": "spiffe://mesh/ns/{ns}/sa/{sa}", "names": ["a."], "node": {"cluster": "{ns}"}},
		{"san": "spiffe://mesh/ns/shop/sa/{sa}", "names": ["b."], "node": {"id": "{sa}"}},
		{"san": "spiffe://mesh/ns/shop/sa/{sa}", "names": ["c."], "node": {"cluster": "{sa}"}}]`)
	for name, test := range map[string]struct {
		node, want *corepb.Node
		may, not   string
	}{
		"neither field":      {nil, node("cart", "shop"), "ab", "c"},
		"one of them":        {node("cart", ""), node("cart", "shop"), "ab", "c"},
		"another id":         {node("x", ""), node("x", "shop"), "a", "bc"},
		"the other cluster":  {node("", "cart"), node("cart", "cart"), "bc", "a"},
		"an unknown cluster": {node("", "x"), node("cart", "x"), "b", "ac"},
	} {
		grant, is, err := rules.Grant(as(t, "spiffe://mesh/ns/shop/sa/cart"), test.node)
		if err != nil || !proto.Equal(is, test.want) {
			t.Errorf("%s: got the node %v, %v, want %v", name, is, err, test.want)
		}
		for _, of := range test.may {
			if err := grant.Check(string(of) + "."); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, of := range test.not {
			if grant.Check(string(of)+".") == nil {
				t.Errorf("%s may have %c", name, of)
			}
		}
	}
}

// No client can be a node of another one, whatever the characters of its ID are.
func TestGrant_NodesOfOthers(t *testing.T) {
	t.Parallel()
	for want, tests := range map[string]map[string]struct{ may, not string }{
		"{service}-*": {
			"shop":       {may: "shop-1", not: "shop-admin-1"},
			"shop-admin": {may: "shop-admin-1", not: "shop-admin-1-2"},
			"a":          {may: "a-b.c_d", not: "a-"},
		},
		"{service}/*": {
			"shop":  {may: "shop/7d9f8b-x2x", not: "shop/admin/1"},
			"other": {may: "other/1", not: "other-1"},
		},
		"{service}-pod-*": {
			"shop":     {may: "shop-pod-1", not: "shop-pod-pod-1"},
			"shop-pod": {may: "shop-pod-pod-1", not: "shop-pod-1"},
		},
		"shop-*":              {"shop": {may: "shop-1", not: "shop-admin-1"}},
		"{service}.{ns}":      {"shop": {may: "shop.a-b", not: "shop.a"}, "x.y": {may: "x.y.a-b", not: "x.y"}},
		"{ns}/{service}":      {"shop": {may: "a-b/shop", not: "a/b-shop"}},
		"{ns}-{service}":      {"shop": {may: "a-b-shop", not: "a-b"}, "b-shop": {not: "a-b-b-shop"}},
		"{ns}-{service}-*":    {"shop": {may: "a-b-shop-1", not: "a-b-shop-1-1"}, "b-shop": {not: "a-b-b-shop-1"}},
		"{service}-{service}": {"shop": {may: "shop-shop", not: "shop"}, "a-b": {not: "a-b-a-b"}},
	} {
		rules := parse(t, `[{"san": "spiffe://mesh/ns/{ns}/sa/{service}", "names": ["a."], "node": {"id": "`+want+`"}}]`)
		for service, test := range tests {
			ctx := as(t, "spiffe://mesh/ns/a-b/sa/"+service)
			if _, is, err := rules.Grant(ctx, node(test.may, "")); test.may != "" && (err != nil || is.GetId() != test.may) {
				t.Errorf("%s: %s may not be %q: %v", want, service, test.may, err)
			}
			if _, _, err := rules.Grant(ctx, node(test.not, "")); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "node.id") {
				t.Errorf("%s: %s may be %q: %v", want, service, test.not, err)
			}
		}
	}
}

// Clients are one peer if they have one identity at one host.
func TestPeer(t *testing.T) {
	t.Parallel()
	tcp := func(addr string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", addr)
		xdstest.NoError(t, err)
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
