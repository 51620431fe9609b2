package main

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/bootstrapfile"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/testutils"
)

// clientKinds are the features of clients, beside delta.
var clientKinds = map[string][]string{
	"plain": nil,
	// It sends locators, without constraints.
	"locators": {"dynamic_parameter_constraints"},
	// It sends locators with the constraints of DPDS, but for plain names.
	"DPDS": {"dynamic_parameter_constraints", "dpds"},
}

// kindOf returns the options of a client kind, and the server that it uses.
func (s *secure) kindOf(features []string, delta bool, token string) (opts []testutils.BootstrapOption) {
	server := map[string]any{
		"server_uri":    s.server,
		"channel_creds": []any{map[string]any{"type": "tls", "config": map[string]any{"ca_certificate_file": s.caFile}}},
	}
	if token != "" {
		server["call_creds"] = []any{map[string]any{"type": "jwt_token_file", "config": map[string]any{"jwt_token_file": token}}}
	}
	has := []string{}
	for _, feature := range features {
		if feature == "dpds" {
			opts = append(opts, testutils.Authority("mesh", "", map[string]any{"dynamic_parameter_constraints_resource": bootstrapfile.DPDSName("mesh")}))
		} else {
			has = append(has, feature)
		}
	}
	if delta {
		has = append(has, "delta")
	}
	server["server_features"] = has
	return append(opts, testutils.TopLevel("xds_servers", []any{server}))
}

// eachClientKind runs a test with clients of each kind, over SotW and delta, with a token and with a mere claim of their namespace.
func (s *secure) eachClientKind(t *testing.T, test func(t *testing.T, dial func(t *testing.T, namespace, target string, opts ...testutils.BootstrapOption) *grpc.ClientConn), pods *pods, namespaces ...string) {
	tokens := map[string]string{}
	for _, namespace := range namespaces {
		tokens[namespace] = writeToken(t, s.in(namespace).token("client", "dynxds", nil))
	}
	for kind, features := range clientKinds {
		for _, delta := range []bool{false, true} {
			for _, verified := range []bool{false, true} {
				xdstest.Parallel(t, fmt.Sprintf("%s, delta %t, verified %t", kind, delta, verified), func(t *testing.T) {
					test(t, func(t *testing.T, namespace, target string, opts ...testutils.BootstrapOption) *grpc.ClientConn {
						t.Helper()
						token := ""
						if verified {
							token = tokens[namespace]
						} else if namespace != "" {
							opts = append(opts, in(namespace))
						}
						opts = append(opts, s.kindOf(features, delta, token)...)
						return cmdtest.DialXDS(t, target, testutils.Bootstrap("client", s.server, opts...), pods.dial())
					})
				})
			}
		}
	}
}

func anonymousToo(f *flags) { f.anonymous = true }

// The namespace of the client decides about short names and consumer routes, whatever the client's features are and whatever
// constraints it sends. A client of which no namespace is known has no short names.
func TestShortNamesOfEveryClient(t *testing.T) {
	t.Parallel()
	s, pods := newSecure(t, anonymousToo), &pods{}
	other, third := s.in(s.addNamespace()), s.in(s.addNamespace())
	for _, k := range []*kube{s.kube, other} {
		k.service("greeter", "8080")
		ip, _ := pods.start(t, k.namespace)
		k.slice("greeter-1", "greeter", "", 8080, ready(ip))
	}
	// What the clients of the third namespace get of the first one's Service is not for anybody else.
	third.service("own", "8080")
	ip, _ := pods.start(t, "own")
	third.slice("own-1", "own", "", 8080, ready(ip))
	third.object(route("consumer", s.namespace, "greeter", "{name: own, port: 8080}"))
	third.awaitConditions("consumer", "Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs")
	s.eachClientKind(t, func(t *testing.T, dial func(*testing.T, string, string, ...testutils.BootstrapOption) *grpc.ClientConn) {
		for _, k := range []*kube{s.kube, other} {
			for _, target := range []string{"xds:///greeter", "xds:///greeter:8080"} {
				xdstest.Equal(t, "who answers in "+k.namespace, k.namespace, call(t, dial(t, k.namespace, target)))
			}
			xdstest.Equal(t, "who answers to the full name", s.namespace, call(t, dial(t, k.namespace, "xds:///greeter."+s.namespace)))
		}
		fails(t, dial(t, third.namespace, "xds:///greeter"), `xDS Listener "greeter"`)
		xdstest.Equal(t, "who answers where the consumer route is", "own", call(t, dial(t, third.namespace, "xds:///greeter."+s.namespace)))
	}, pods, s.namespace, other.namespace, third.namespace)

	for kind, features := range clientKinds {
		for _, delta := range []bool{false, true} {
			xdstest.Parallel(t, fmt.Sprintf("%s, delta %t, no namespace", kind, delta), func(t *testing.T) {
				opts := s.kindOf(features, delta, "")
				fails(t, cmdtest.DialXDS(t, "xds:///greeter", testutils.Bootstrap("client", s.server, opts...), pods.dial()), `xDS Listener "greeter"`)
				// A claim too large for constraints is none.
				opts = append(opts, testutils.NodeField("metadata", map[string]any{"namespace": string(make([]byte, 70_000))}))
				fails(t, cmdtest.DialXDS(t, "xds:///greeter", testutils.Bootstrap("client", s.server, opts...), pods.dial()), `xDS Listener "greeter"`)
			})
		}
	}
	for _, delta := range []bool{false, true} {
		xdstest.Parallel(t, fmt.Sprintf("constraints of its own, delta %t", delta), func(t *testing.T) {
			opts := append(s.kindOf(clientKinds["locators"], delta, writeToken(t, s.token("client", "dynxds", nil))), testutils.TopLevel("dynamic_parameter_constraints", map[string]any{
				"envoy.config.listener.v3.Listener": map[string]any{"key_constraints": map[string]any{
					"xds_namespace": map[string]any{"constraints": []any{map[string]any{"value": other.namespace}}},
				}},
			}))
			fails(t, cmdtest.DialXDS(t, "xds:///greeter", testutils.Bootstrap("client", s.server, opts...), pods.dial()), "PermissionDenied", "xds_namespace")
		})
	}
}

// A namespace that is closed takes from clients of others what they have, if they fail on data errors (gRFC A88); one that is
// opened gives it back. Neither takes a new connection.
func TestNamespaceClosedUnderWay(t *testing.T) {
	t.Parallel()
	s, pods := newSecure(t, anonymousToo), &pods{}
	other := s.addNamespace()
	s.service("greeter", "8080")
	ip, _ := pods.start(t, "a")
	s.slice("greeter-1", "greeter", "", 8080, ready(ip))
	conns := map[string][]*grpc.ClientConn{}
	for namespace := range map[string]bool{s.namespace: true, other: true} {
		token := writeToken(t, s.in(namespace).token("client", "dynxds", nil))
		for _, features := range clientKinds {
			for _, delta := range []bool{false, true} {
				opts := s.kindOf(append([]string{"fail_on_data_errors"}, features...), delta, token)
				conn := cmdtest.DialXDS(t, "xds:///greeter."+s.namespace, testutils.Bootstrap("client", s.server, opts...), pods.dial())
				xdstest.Equal(t, "who answers", "a", call(t, conn))
				conns[namespace] = append(conns[namespace], conn)
			}
		}
	}
	label := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, cluster.ClosedLabel, value)
		_, err := s.client.CoreV1().Namespaces().Patch(testutils.Context(t), s.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		xdstest.NoError(t, err)
	}
	label(`"true"`)
	for _, conn := range conns[other] {
		awaitInvoke(t, conn, "/grpc.testing.TestService/UnaryCall", nil, "Unavailable")
		fails(t, conn, "closed to clients of other namespaces")
	}
	for _, conn := range conns[s.namespace] {
		xdstest.Equal(t, "who answers inside", "a", call(t, conn))
	}
	label("null")
	for _, list := range conns {
		for _, conn := range list {
			awaitIDs(t, conn, "a")
		}
	}
}
