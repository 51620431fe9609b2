package xdsclient

import (
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// The published Envoy API has a later form of xRFC TP2, in which a Resource has its
// constraints where the form of 2021-08 has its dynamic parameters (field 8).

// published makes constraints of the published form: all of texts like "env=prod".
func published(texts ...string) *discoveryv3.DynamicParameterConstraints {
	var all []*discoveryv3.DynamicParameterConstraints
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		all = append(all, &discoveryv3.DynamicParameterConstraints{Type: &discoveryv3.DynamicParameterConstraints_Constraint{
			Constraint: &discoveryv3.DynamicParameterConstraints_SingleConstraint{
				Key: key, ConstraintType: &discoveryv3.DynamicParameterConstraints_SingleConstraint_Value{Value: value},
			},
		}})
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &discoveryv3.DynamicParameterConstraints{Type: &discoveryv3.DynamicParameterConstraints_AndConstraints{
		AndConstraints: &discoveryv3.DynamicParameterConstraints_ConstraintList{Constraints: all},
	}}
}

// publishedVariants are variants of a resource as a server of the published form sends
// them. "Only one of name or resource_name may be set", but some set both.
var publishedVariants = map[string]func(name string) *discoveryv3.Resource{
	"resource_name": func(name string) *discoveryv3.Resource {
		return &discoveryv3.Resource{ResourceName: &discoveryv3.ResourceName{Name: name, DynamicParameterConstraints: published("env=test")}}
	},
	"name and resource_name": func(name string) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, ResourceName: &discoveryv3.ResourceName{Name: name, DynamicParameterConstraints: published("env=test", "v=1")}}
	},
	"no constraints": func(name string) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, ResourceName: &discoveryv3.ResourceName{Name: name}}
	},
	"exists": func(name string) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, ResourceName: &discoveryv3.ResourceName{Name: name,
			DynamicParameterConstraints: &discoveryv3.DynamicParameterConstraints{Type: &discoveryv3.DynamicParameterConstraints_NotConstraints{
				NotConstraints: &discoveryv3.DynamicParameterConstraints{Type: &discoveryv3.DynamicParameterConstraints_Constraint{
					Constraint: &discoveryv3.DynamicParameterConstraints_SingleConstraint{
						Key: "env", ConstraintType: &discoveryv3.DynamicParameterConstraints_SingleConstraint_Exists_{Exists: &discoveryv3.DynamicParameterConstraints_SingleConstraint_Exists{}},
					},
				}},
			}}}}
	},
}

// A server that speaks the published form is told apart by the name in field 8, and
// refused: what it sends is not what the client asked for.
func TestPublishedFormIsRefused(t *testing.T) {
	for what, make := range publishedVariants {
		for _, variant := range []string{"SotW", "delta"} {
			for _, name := range []string{"a", "xdstp://auth/envoy.config.cluster.v3.Cluster/a"} {
				t.Run(strings.Join([]string{what, variant, name[:1]}, " "), func(t *testing.T) {
					bubble(t, func(t *testing.T) { refusesPublished(t, variant == "delta", name, make(name)) })
				})
			}
		}
	}
}

func refusesPublished(t *testing.T, delta bool, name string, r *discoveryv3.Resource) {
	types, server := newTestTypes(), newScript(t)
	features := []string{"dynamic_parameter_constraints"}
	if delta {
		features = append(features, "delta")
	}
	c := server.client(testutils.ServerFeatures(features...), testutils.Authority("auth", "", nil))
	prod, other := newEar(t), newEar(t)
	c.WatchLocator(types.clusters, name, choose("env=prod"), prod)
	c.WatchLocator(types.clusters, name, choose(), other)
	if a, err := anyOf(cluster(name, "test")); err != nil {
		t.Fatal(err)
	} else {
		r.Version, r.Resource = "1", a
	}
	var nack string
	if delta {
		server.open()
		s := server.askedDelta()
		s.send(types.clusters, "n1", func(m *discoveryv3.DeltaDiscoveryResponse) { m.Resources = append(m.Resources, r) })
		nack = s.request().GetErrorDetail().GetMessage()
	} else {
		server.open()
		s := server.asked()
		s.send(types.clusters, "1", "n1", &anypb.Any{TypeUrl: wrapperType, Value: mustMarshal(t, r)})
		nack = s.request().GetErrorDetail().GetMessage()
	}
	for _, text := range []string{prod.fault(KindInvalid).Error(), other.fault(KindInvalid).Error(), nack} {
		for _, want := range []string{"published form of xRFC TP2", "server_features", "dynamic_parameter_constraints", name} {
			if !strings.Contains(text, want) {
				t.Errorf("got %q, want %q in it", text, want)
			}
		}
	}
	allSilent(prod, other)
	if got := c.Stats(); got.Rejected != 1 || types.decoded.Load() != 0 {
		t.Errorf("Stats() is %+v with %d resources decoded, want 1 rejected and none decoded", got, types.decoded.Load())
	}
}

// The version in use stays, as with every faulty one.
func TestPublishedFormAfterAGoodVersion(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		prod, other := d.watchBoth("env=prod", "env=test")
		d.says(variantOf("a", "env=prod", "p"), variantOf("a", "env=test", "t"))
		prod.cluster("p")
		other.cluster("t")
		xdstest.Equal(t, "verdict", ads.VerdictRejected, d.publishes("a"))
		allAmbient(KindInvalid, prod, other)
		d.hears()
		d.says(variantOf("a", "env=prod", "p"), variantOf("a", "env=test", "t"))
		prod.cluster("p")
		other.cluster("t")
	})
}

// A resource that is not watched is no reason to NACK, in any form.
func TestPublishedFormOfUnwatchedResources(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		e, _ := d.watch("a", "env=prod")
		d.listens()
		xdstest.Equal(t, "verdict", ads.VerdictAccepted, d.publishes("b"))
		e.silent()
	})
}

// publishes sends a resource in the published form.
func (d *desk) publishes(name string) ads.Verdict {
	d.t.Helper()
	a, err := anyOf(cluster(name, "x"))
	xdstest.NoError(d.t, err)
	r := &discoveryv3.Resource{Name: name, Version: "1", Resource: a,
		ResourceName: &discoveryv3.ResourceName{Name: name, DynamicParameterConstraints: published("env=prod")}}
	if d.delta {
		return d.k.push(mustMarshal(d.t, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: d.types.clusters.TypeURL, Nonce: "p", Resources: []*discoveryv3.Resource{r}}))
	}
	return d.k.push(mustMarshal(d.t, &discoveryv3.DiscoveryResponse{TypeUrl: d.types.clusters.TypeURL, VersionInfo: "p", Nonce: "p",
		Resources: []*anypb.Any{{TypeUrl: wrapperType, Value: mustMarshal(d.t, r)}}}))
}

// A collection hears of its members, and that the server has answered.
func TestPublishedFormOfMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newCollectionDesk(t)
		e, _ := d.collect("env=prod")
		d.listens()
		xdstest.Equal(t, "verdict", ads.VerdictRejected, d.publishes(collectionDir+"a"))
		e.heard("member a: invalid", "collection")
	})
}

// Errors and removals have the published constraints in the place of those of 2021-08 as
// well.
func TestPublishedFormOfErrors(t *testing.T) {
	for _, constraints := range [][]string{{"env=prod"}, {"env=prod", "v=1"}} {
		t.Run(strings.Join(constraints, ","), func(t *testing.T) {
			overDesks(t, nil, func(t *testing.T, d *desk) {
				e, _ := d.watch("a", "env=prod")
				d.listens()
				name := &discoveryv3.ResourceName{Name: "a", DynamicParameterConstraints: published(constraints...)}
				failures := []*discoveryv3.ResourceError{{ResourceName: name, ErrorDetail: &statuspb.Status{Code: int32(codes.PermissionDenied)}}}
				delta := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: d.types.clusters.TypeURL, Nonce: "p", ResourceErrors: failures}
				message := mustMarshal(t, delta)
				if !d.delta {
					message = mustMarshal(t, &discoveryv3.DiscoveryResponse{TypeUrl: d.types.clusters.TypeURL, VersionInfo: "p", Nonce: "p", ResourceErrors: failures})
				}
				xdstest.Equal(t, "verdict", ads.VerdictRejected, d.k.push(message))
				if err := e.fault(KindInvalid); !strings.Contains(err.Error(), "published form of xRFC TP2") {
					t.Errorf("got %v, want the form in it", err)
				}
				if !d.delta {
					return
				}
				d.says(variantOf("a", "env=prod", "p"))
				e.cluster("p")
				delta.ResourceErrors, delta.RemovedResourceNames = nil, []*discoveryv3.ResourceName{name}
				xdstest.Equal(t, "verdict", ads.VerdictRejected, d.k.push(mustMarshal(t, delta)))
				if err := e.ambient(KindInvalid); !strings.Contains(err.Error(), "published form of xRFC TP2") {
					t.Errorf("got %v, want the form in it", err)
				}
			})
		})
	}
}

// A dynamic parameter may be called like the resource.
func TestParameterCalledLikeTheResource(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		d.types.clusters.FullStateInSotW = false
		for _, value := range []string{"prod", "3", "a b"} {
			e, _ := d.watch("env", "env="+value)
			d.listens()
			if v := d.says(variantOf("env", "env="+value, value)); v != ads.VerdictAccepted {
				t.Errorf("verdict %v of {env=%s}, want accepted", v, value)
			}
			e.cluster(value)
		}
	})
}
