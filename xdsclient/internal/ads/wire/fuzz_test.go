package wire

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	xdstest.NoError(t, err)
	return b
}

// What proto.Unmarshal accepts is read alike.
func FuzzSotWDecode(f *testing.F) {
	f.Add(marshal(f, &discoveryv3.DiscoveryResponse{TypeUrl: "t", VersionInfo: "1", Nonce: "n",
		Resources: []*anypb.Any{{TypeUrl: "t", Value: []byte("a")}, {TypeUrl: "t", Value: []byte("b")}}}))
	f.Add([]byte{2<<3 | 2, 0, 4<<3 | 2, 1, 'x', 4 << 3, 1})
	wrapped := marshal(f, &discoveryv3.Resource{Name: "w", Resource: &anypb.Any{TypeUrl: "t"}})
	f.Add(marshal(f, &discoveryv3.DiscoveryResponse{TypeUrl: "x", Canary: true, Nonce: "n",
		Resources: []*anypb.Any{{TypeUrl: typeurl.Wrapper, Value: wrapped}}}))
	f.Fuzz(func(t *testing.T, message []byte) {
		var want discoveryv3.DiscoveryResponse
		if proto.Unmarshal(message, &want) != nil || want.GetTypeUrl() == "" {
			// Parts that do not matter here may be malformed: no panic is enough.
			if r, err := (Dialect{}).Decode(message); err == nil {
				for range r.Resources {
				}
			}
			return
		}
		got, err := Dialect{}.Decode(message)
		if err != nil {
			t.Fatalf("proto.Unmarshal accepts what Decode does not: %v", err)
		}
		if got.TypeURL != want.GetTypeUrl() || got.Version != want.GetVersionInfo() || got.Nonce != want.GetNonce() {
			t.Fatalf("got %+v, want %v", got, &want)
		}
		n := 0
		for r := range got.Resources {
			checkResource(t, r, want.GetResources()[n], got.TypeURL)
			n++
		}
		if n != len(want.GetResources()) {
			t.Fatalf("got %d resources, want %d", n, len(want.GetResources()))
		}
	})
}

// The same of delta.
func FuzzDeltaDecode(f *testing.F) {
	f.Add(marshal(f, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: "t", SystemVersionInfo: "debug", Nonce: "n",
		Resources: []*discoveryv3.Resource{
			{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: "t"}, Aliases: []string{"alias"}}, {Name: "b", Version: "2"}},
		RemovedResources: []string{"c", ""},
		ResourceErrors: []*discoveryv3.ResourceError{
			{ResourceName: &discoveryv3.ResourceName{Name: "d"}, ErrorDetail: &statuspb.Status{Code: 5, Message: "x"}}, {}}}))
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := Dialect{Incremental: true}.Decode(message)
		var want discoveryv3.DeltaDiscoveryResponse
		if proto.Unmarshal(message, &want) != nil || want.GetTypeUrl() == "" {
			if err == nil {
				for range got.Resources {
				}
				for range got.Errors {
				}
				for range got.Removed {
				}
			}
			return
		}
		if err != nil {
			t.Fatalf("proto.Unmarshal accepts what Decode does not: %v", err)
		}
		if got.TypeURL != want.GetTypeUrl() || got.Version != want.GetSystemVersionInfo() || got.Nonce != want.GetNonce() {
			t.Fatalf("got %+v, want %v", got, &want)
		}
		for r := range got.Resources {
			checkWrapped(t, r, want.GetResources()[r.Index], got.TypeURL)
			want.Resources[r.Index] = nil
		}
		for name := range got.Removed {
			if string(name.Name) != want.GetRemovedResources()[0] {
				t.Fatalf("%q is removed, want %q", name.Name, want.GetRemovedResources())
			}
			want.RemovedResources = want.RemovedResources[1:]
		}
		for e := range got.Errors {
			w := want.GetResourceErrors()[0]
			want.ResourceErrors = want.ResourceErrors[1:]
			if string(e.Name) != w.GetResourceName().GetName() || e.code != w.GetErrorDetail().GetCode() ||
				string(e.message) != w.GetErrorDetail().GetMessage() || (e.Err == nil) != (len(e.Name) > 0) {
				t.Fatalf("got error %+v, want %v", e, w)
			}
		}
		if n := len(want.GetRemovedResources()) + len(want.GetResourceErrors()); n > 0 || slices.ContainsFunc(want.GetResources(), func(r *discoveryv3.Resource) bool { return r != nil }) {
			t.Fatalf("what is left out is %v", &want)
		}
	})
}

func checkResource(t *testing.T, got Resource, want *anypb.Any, typeURL string) {
	t.Helper()
	if want.GetTypeUrl() == typeurl.Wrapper {
		var w discoveryv3.Resource
		if proto.Unmarshal(want.GetValue(), &w) == nil {
			checkWrapped(t, got, &w, typeURL)
		}
		return
	}
	checkValue(t, got, want, typeURL)
}

func checkWrapped(t *testing.T, got Resource, want *discoveryv3.Resource, typeURL string) {
	t.Helper()
	if string(got.Name) != want.GetName() || string(got.Version) != want.GetVersion() {
		t.Fatalf("resource %d is %q %q, want %q %q", got.Index, got.Name, got.Version, want.GetName(), want.GetVersion())
	}
	if got.Heartbeat != (want.GetResource() == nil && want.GetName() != "" && want.GetVersion() != "") {
		t.Fatalf("resource %d: heartbeat is %v for %v", got.Index, got.Heartbeat, want)
	}
	var aliases []string
	if got.HasAliases() {
		for alias := range got.Aliases() {
			aliases = append(aliases, string(alias))
		}
	}
	if !slices.Equal(aliases, want.GetAliases()) {
		t.Fatalf("resource %d has aliases %q, want %q", got.Index, aliases, want.GetAliases())
	}
	if !got.Heartbeat {
		checkValue(t, got, want.GetResource(), typeURL)
	}
}

func checkValue(t *testing.T, got Resource, want *anypb.Any, typeURL string) {
	t.Helper()
	if (got.Err == nil) != (want.GetTypeUrl() == typeURL) {
		t.Fatalf("resource %d of type %q: got error %v", got.Index, want.GetTypeUrl(), got.Err)
	}
	if got.Err == nil && string(got.Value) != string(want.GetValue()) {
		t.Fatalf("resource %d has the value %x, want %x", got.Index, got.Value, want.GetValue())
	}
}

// What the messages of xRFC TP2 accept is read alike.
func FuzzLocatorFields(f *testing.F) {
	prod, err := dynparam.New(dynparam.Require("env", dynparam.Value("prod")))
	xdstest.NoError(f, err)
	constraints := prod.ToProto()
	f.Add(marshal(f, &discoverypb.DeltaDiscoveryResponse{TypeUrl: "x",
		Resources: []*discoverypb.Resource{{Name: "a", Version: "x", Resource: &anypb.Any{TypeUrl: "x"},
			DynamicParameters: map[string]string{"env": "prod", "v": "1"}}},
		RemovedResourceNames: []*discoverypb.ResourceName{{Name: "a", DynamicParameterConstraints: constraints}, {Name: "b"}},
		ResourceErrors:       []*discoverypb.ResourceError{{ResourceName: &discoverypb.ResourceName{Name: "a"}}}}))
	f.Fuzz(func(t *testing.T, message []byte) {
		var want discoverypb.DeltaDiscoveryResponse
		if proto.Unmarshal(message, &want) != nil || want.GetTypeUrl() == "" {
			return
		}
		got, err := Dialect{Incremental: true}.Decode(message)
		if err != nil {
			t.Fatalf("proto.Unmarshal accepts what Decode does not: %v", err)
		}
		for r := range got.Resources {
			p, err := dynwire.UnmarshalParameters(r.Parameters)
			wanted, wantErr := dynparam.NewParameters(want.GetResources()[r.Index].GetDynamicParameters())
			if (err == nil) != (wantErr == nil) || err == nil && !p.Equal(wanted) {
				t.Fatalf("resource %d has the parameters %v, %v, want %v, %v", r.Index, p, err, wanted, wantErr)
			}
		}
		i := 0
		for n := range got.RemovedLocators {
			w := want.GetRemovedResourceNames()[i]
			if string(n.Name) != w.GetName() || n.Scoped != (w.DynamicParameterConstraints != nil) || (n.Err == nil) != (w.GetName() != "") {
				t.Fatalf("removed_resource_names[%d] is %+v, want %v", i, n, w)
			}
			i++
		}
		if i != len(want.GetRemovedResourceNames()) {
			t.Fatalf("%d names are removed, want %d", i, len(want.GetRemovedResourceNames()))
		}
	})
}
