package interop_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// language is gRPC in another language: a program that makes RPCs and reports what came
// of them.
type language struct {
	name string
	// install returns the folder with the program and what it needs, and the beginning of its
	// command line. It skips the test if that cannot be had, and says why.
	install func(t *testing.T) (dir string, command []string)
}

var languages = []language{{"grpc-js", installJS}, {"C-core", installPython}}

func installJS(t *testing.T) (dir string, command []string) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("grpc-js is not tested: this machine has no %s", program)
		}
	}
	dir, err := installedJS()
	if err != nil {
		t.Skipf("grpc-js is not tested: %v", err)
	}
	return dir, []string{"node", "client.js"}
}

// systemPython is the Python that Debian's python3-grpcio is for. Others, which come
// first in PATH, may have other versions of gRPC, or none.
const systemPython = "/usr/bin/python3"

func installPython(t *testing.T) (dir string, command []string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), systemPython, "-c", "import grpc").CombinedOutput(); err != nil {
		t.Skipf("C-core is not tested: %s has no grpc, which is in Debian's package python3-grpcio: %v\n%s", systemPython, err, out)
	}
	return "python", []string{systemPython, "client.py"}
}

// eachLanguage runs a test with a way to start clients of each language.
func eachLanguage(t *testing.T, test func(t *testing.T, start startClient)) {
	t.Parallel()
	for _, l := range languages {
		xdstest.Parallel(t, l.name, func(t *testing.T) {
			dir, command := l.install(t)
			test(t, func(t *testing.T, target string, bootstrap []byte, calls ...otherCall) *otherClient {
				t.Helper()
				list, err := json.Marshal(calls)
				xdstest.NoError(t, err)
				cmd := exec.Command(command[0], append(command[1:len(command):len(command)], target, string(list))...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+string(bootstrap))
				return startOther(t, cmd)
			})
		})
	}
}

// The xDS clients of other languages accept everything from our control plane, with a relay in front of it or without,
// and follow every change.
func TestOtherLanguagesAgainstOurControlPlane(t *testing.T) {
	eachLanguage(t, func(t *testing.T, start startClient) {
		for name, how := range ourOptions {
			xdstest.Parallel(t, name, func(t *testing.T) {
				s := startOurServer(t, how)
				client := start(t, "xds:///"+service, s.bootstrapForOthers(), emptyCall)
				for _, step := range s.ourSteps() {
					step.change(t)
					client.mustReach(t, step.answering, step.name)
				}
				s.checkAccepted(t)
			})
		}
	})
}

// serviceWith is a service with endpoints, each "address version".
func serviceWith(name string, endpoints ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "---\nkind: Service\nname: %s\nendpoints:\n", name)
	for _, e := range endpoints {
		address, version, _ := strings.Cut(e, " ")
		fmt.Fprintf(&text, "- {address: %q, tags: {version: %s}}\n", address, version)
	}
	return text.String()
}

// No RPC of a client of "dynxds serve" fails when one update moves routes to a new service and deletes the old one, again
// and again.
func TestOtherLanguagesFollowADeletedService(t *testing.T) {
	eachLanguage(t, func(t *testing.T, start startClient) {
		echo, blue, green := testutils.StartBackend(t, "echo"), testutils.StartBackend(t, "blue"), testutils.StartBackend(t, "green")
		to := func(name string, backend *testutils.Backend) string {
			// One of three services is deleted. If it were more, the server would wait before it believes the change.
			return serviceWith("echo", echo.Addr()+" v1") + serviceWith("other", echo.Addr()+" v1") + serviceWith(name, backend.Addr()+" v1") + `---
kind: MeshHTTPRoute
name: move
spec: {to: [{targetRef: {kind: MeshService, name: echo}, rules: [{backendRefs: [{kind: MeshService, name: ` + name + `}]}]}]}
`
		}
		f := serveFolder(t, map[string]string{"mesh.yaml": to("blue", blue)})
		client := start(t, "xds:///echo", f.bootstrap("frontend", "v1"), emptyCall)
		client.mustReach(t, "blue", "the beginning")
		for round := range 5 {
			f.reload("mesh.yaml", to("green", green), "published")
			client.mustReach(t, "green", fmt.Sprintf("blue is deleted, round %d", round))
			f.reload("mesh.yaml", to("blue", blue), "published")
			client.mustReach(t, "blue", fmt.Sprintf("green is deleted, round %d", round))
		}
		client.mustNotHaveFailed(t, "services were deleted while routes moved")
	})
}

// beyondGRPC has everything that clients of other implementations reject or misread: two
// endpoints of echo that are host names, of which one has a subset to itself, and rules
// with queryParams, methods and a redirect.
func beyondGRPC(v1, v2, nowhere string) string {
	return serviceWith("echo", v1+" v1", "host.invalid:1 v1", "other.invalid:1 v3") + serviceWith("next", v2+" v2", nowhere+" v3") + `---
kind: MeshHTTPRoute
name: everything
spec:
  to:
  - targetRef: {kind: MeshService, name: echo}
    rules:
    - matches: [{path: {exact: /grpc.testing.TestService/EmptyCall}, queryParams: [{name: a, value: b}]}]
      backendRefs: [{kind: MeshServiceSubset, name: next, tags: {version: v2}}]
    - matches: [{path: {exact: /grpc.testing.TestService/EmptyCall}, methods: [GET]}]
      backendRefs: [{kind: MeshServiceSubset, name: next, tags: {version: v2}}]
    - matches:
      - {path: {exact: /grpc.testing.TestService/EmptyCall}, headers: [{name: exact, value: x}]}
      - {path: {exact: /grpc.testing.TestService/EmptyCall}, headers: [{name: prefix, type: Prefix, value: x}]}
      - {path: {exact: /grpc.testing.TestService/EmptyCall}, headers: [{name: regex, type: RegularExpression, value: "x+"}]}
      - {path: {exact: /grpc.testing.TestService/EmptyCall}, headers: [{name: present, type: Present}]}
      backendRefs: [{kind: MeshServiceSubset, name: next, tags: {version: v2}}]
    - matches: [{path: {exact: /grpc.testing.TestService/UnaryCall}, methods: [POST]}]
      backendRefs: [{kind: MeshServiceSubset, name: next, tags: {version: v2}}]
    - matches: [{path: {exact: /grpc.testing.TestService/CacheableUnaryCall}}]
      filters: [{requestRedirect: {hostname: elsewhere}}]
    - matches: [{path: {exact: /grpc.testing.TestService/HalfDuplexCall}}]
      backendRefs: [{kind: MeshServiceSubset, name: echo, tags: {version: v3}}]
`
}

// beyondGRPCCalls are RPCs, and who answers them, by beyondGRPC.
func beyondGRPCCalls() (calls []otherCall, want map[string]string) {
	const prefix = "/grpc.testing.TestService/"
	with := func(header, value string) map[string]string { return map[string]string{header: value} }
	return []otherCall{
			emptyCall,
			{Name: "exact", Method: emptyCall.Method, Metadata: with("exact", "x")},
			{Name: "not exact", Method: emptyCall.Method, Metadata: with("exact", "xy")},
			{Name: "prefix", Method: emptyCall.Method, Metadata: with("prefix", "xy")},
			{Name: "not prefix", Method: emptyCall.Method, Metadata: with("prefix", "yx")},
			{Name: "regex", Method: emptyCall.Method, Metadata: with("regex", "xxx")},
			{Name: "not regex", Method: emptyCall.Method, Metadata: with("regex", "xxy")},
			{Name: "present", Method: emptyCall.Method, Metadata: with("present", "any")},
			{Name: "method POST", Method: prefix + "UnaryCall"},
			{Name: "redirect", Method: prefix + "CacheableUnaryCall"},
			{Name: "host name", Method: prefix + "HalfDuplexCall"},
		}, map[string]string{
			emptyCall.Name: "v1", "exact": "v2", "not exact": "v1", "prefix": "v2", "not prefix": "v1", "regex": "v2",
			"not regex": "v1", "present": "v2", "method POST": "v2", "redirect": "code 14", "host name": "code 14",
		}
}

// Given a valid folder with every feature that other implementations reject or misread, and a
// bootstrap without a locality, they accept all resources, and their RPCs follow the policies
// or fail at once.
func TestOtherLanguagesAreNeverMisrouted(t *testing.T) {
	eachLanguage(t, func(t *testing.T, start startClient) {
		v1, v2 := testutils.StartBackend(t, "v1"), testutils.StartBackend(t, "v2")
		f := serveFolder(t, map[string]string{"mesh.yaml": beyondGRPC(v1.Addr(), v2.Addr(), "127.0.0.1:1")})
		out, err := exec.CommandContext(t.Context(), f.command, "validate", f.dir, "--authority", "mesh").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "gRPC clients other than those of dynxds:\n") ||
			!strings.Contains(string(out), "Envoy, and gRPC clients in languages other than Go:\n") {
			t.Errorf("dynxds validate: %v\n%s", err, out)
		}
		calls, want := beyondGRPCCalls()
		client := start(t, "xds:///echo", f.bootstrap("frontend", "v1"), calls...)
		for _, call := range calls {
			client.mustBe(t, call.Name, want[call.Name], "the beginning: "+call.Name)
		}
		client.state.Change(func() {
			for _, rpc := range client.failed {
				if want[rpc.Call] != rpc.outcome() {
					t.Errorf("an RPC failed: %+v", rpc)
				}
			}
		})
	})
}
