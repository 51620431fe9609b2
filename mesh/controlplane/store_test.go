package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

func mustUpdate(t *testing.T, s *controlplane.Store, change func(*controlplane.Tx)) uint64 {
	t.Helper()
	version, err := s.Update(change)
	xdstest.NoError(t, err)
	return version
}

// in is a Cluster's name of xRFC TP1.
func in(id string) string { return "xdstp://auth/envoy.config.cluster.v3.Cluster/" + id }

func cluster(name string) *clusterpb.Cluster { return xdsmsg.EDSCluster(name, "") }

// changed is the cluster with other bytes.
func changed(name, alt string) *clusterpb.Cluster {
	c := cluster(name)
	c.AltStatName = alt
	return c
}

func names(resources []*controlplane.Resource) []string {
	var out []string
	for _, r := range resources {
		out = append(out, r.Name())
	}
	return out
}

func TestStore_NameIsTakenFromTheMessage(t *testing.T) {
	t.Parallel()
	s := controlplane.NewStore()
	secret := &tlspb.Secret{Name: "secret"}
	mustUpdate(t, s, func(tx *controlplane.Tx) {
		tx.Set(xdsmsg.DefaultListener("l", "r"), xdsmsg.RouteConfig("r", "*"), cluster("c"), xdsmsg.SimpleEndpoints("e"), secret)
	})
	for _, want := range []struct{ typeURL, name string }{
		{lds, "l"}, {rds, "r"}, {cds, "c"}, {eds, "e"}, {string(xdsmsg.Any(secret).TypeUrl), "secret"},
	} {
		r := s.Get(want.typeURL, want.name)
		if r == nil || r.Name() != want.name || r.Any().GetTypeUrl() != want.typeURL {
			t.Errorf("Get(%q, %q) = %+v", want.typeURL, want.name, r)
		}
	}
}

func TestStore_FaultyUpdateChangesNothingAndNamesAllFaults(t *testing.T) {
	t.Parallel()
	s := controlplane.NewStore()
	before := mustUpdate(t, s, func(tx *controlplane.Tx) { tx.Set(cluster("a")) })
	version, err := s.Update(func(tx *controlplane.Tx) {
		tx.Set(cluster("b"), wrapperspb.String("x"), cluster(""), nil, (*clusterpb.Cluster)(nil))
		tx.SetNamed("", nil, cluster("c"))
		tx.SetNamed("*", nil, cluster("c"))
		tx.SetNamed("\xff", nil, cluster("c"))
		tx.Set(cluster(in("foo/*")), cluster(in("%2A")))
		tx.SetNamed("nil", nil, nil)
		tx.SetNamed("untyped", nil, &anypb.Any{})
		tx.SetNamed("badutf8", nil, wrapperspb.String("\xff"))
		tx.SetError(rds, "no error", nil)
		tx.SetError(rds, "fine", status.New(codes.OK, ""))
		tx.SetError("", "", status.New(codes.PermissionDenied, "not yours"))
		tx.SetError(rds, "text", status.New(codes.Internal, "\xff"))
		tx.Delete(cds, "a")
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"*wrapperspb.StringValue has no name field", "name of the *clusterv3.Cluster is empty", `set "": the message is nil`,
		`the name "*" is reserved`, `"\xff"`, `"nil"`, `"untyped": there is no resource, or its Any has no type URL`, `"badutf8": serializing`,
		`"no error": the status is OK`, `"fine": the status is OK`, "the type URL is empty", "the name is empty", `"text": serializing the status`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q:\n%v", want, err)
		}
	}
	if got := strings.Count(err.Error(), "glob collection"); got != 2 {
		t.Errorf("%d names of globs are named, want 2:\n%v", got, err)
	}
	if got := strings.Count(err.Error(), "the message is nil"); got != 3 {
		t.Errorf("%d nil messages are named, want 3:\n%v", got, err)
	}
	if version != before || s.Version() != before || !slices.Equal(names(s.Resources(cds)), []string{"a"}) {
		t.Errorf("version %d → %d, Clusters %q", before, version, names(s.Resources(cds)))
	}
}

func TestStore_VersionsChangeOnlyWithTheBytes(t *testing.T) {
	t.Parallel()
	s := controlplane.NewStore()
	metadata := func() *corepb.Metadata {
		fields := map[string]*structpb.Value{}
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			fields[key] = structpb.NewStringValue(key)
		}
		return &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{"x": {Fields: fields}}}
	}
	build := func(alt string) *clusterpb.Cluster {
		c := changed("c", alt)
		c.Metadata = metadata()
		return c
	}
	v1 := mustUpdate(t, s, func(tx *controlplane.Tx) { tx.Set(build("1"), cluster("other")) })
	first, other := s.Get(cds, "c"), s.Get(cds, "other")
	for range 20 { // a map has another order each time
		if v := mustUpdate(t, s, func(tx *controlplane.Tx) { tx.Set(build("1")) }); v != v1 {
			t.Fatalf("setting the same bytes made version %d of %d", v, v1)
		}
	}
	if s.Get(cds, "c") != first {
		t.Error("setting the same bytes replaced the resource")
	}
	v2 := mustUpdate(t, s, func(tx *controlplane.Tx) { tx.Set(build("2")) })
	second := s.Get(cds, "c")
	if v2 != v1+1 || second.Version() == first.Version() {
		t.Errorf("store %d → %d, resource %q → %q", v1, v2, first.Version(), second.Version())
	}
	if s.Get(cds, "other") != other {
		t.Error("another resource was replaced")
	}
	mustUpdate(t, s, func(tx *controlplane.Tx) { tx.Set(build("1")) })
	xdstest.Equal(t, "the version of the same bytes", first.Version(), s.Get(cds, "c").Version())
}

func TestTx_MessagesMayBeReused(t *testing.T) {
	t.Parallel()
	s := controlplane.NewStore()
	c := cluster("c")
	raw := &anypb.Any{TypeUrl: "example.com/raw", Value: []byte("raw")}
	mustUpdate(t, s, func(tx *controlplane.Tx) {
		tx.Set(c)
		tx.SetNamed("raw", nil, raw)
		c.AltStatName = "edited"
		raw.Value[0] = 'X'
	})
	xdstest.Equal(t, "raw resource", "raw", string(s.Get("example.com/raw", "raw").Any().GetValue()))
	var stored clusterpb.Cluster
	xdstest.NoError(t, s.Get(cds, "c").Any().UnmarshalTo(&stored))
	xdstest.Equal(t, "stored", cluster("c"), &stored, protocmp.Transform())
}
