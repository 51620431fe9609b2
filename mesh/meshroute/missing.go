package meshroute

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// This file is about rules that send requests to services that the mesh does not have. Only those requests
// fail: the routes name the Clusters as if the services were there, and each Cluster is an error with the
// reason (xRFC TP3).

// missingID is the id of the Cluster without endpoints that is in place of a missing subset for gRPC
// clients other than those of dynxds. These know no errors of resources, and without the Cluster they
// would wait for it. No subset has the id. It is part of the error of RPCs in some clients.
func missingID(subset string) string { return subset + ";no-such-service" }

// compileMissing adds the resources of missing backends.
func (b *builder) compileMissing() {
	for id, policies := range b.missingBackends() {
		n := b.mesh.naming
		cluster := n.cluster(meshpolicy.Subset{ID: missingID(id)})
		assignment := cluster.GetEdsClusterConfig().GetServiceName()
		service, _, _ := strings.Cut(id, ";")
		b.addShared(&Resource{TypeURL: ClusterType, Name: n.resource(ClusterType, id), Service: service, Err: status.Newf(codes.NotFound,
			"the mesh has no service %q, to which requests are sent by %s", service, namesOf(policies))})
		b.addShared(&Resource{TypeURL: ClusterType, Name: cluster.GetName(), Service: service, Message: cluster})
		b.addShared(&Resource{TypeURL: EndpointsType, Name: assignment, Service: service, Message: &endpointpb.ClusterLoadAssignment{ClusterName: assignment}})
	}
}

// missingBackends returns the policies that send requests to each missing subset, by its id.
func (b *builder) missingBackends() map[string][]string {
	missing := make(map[string][]string)
	for _, p := range b.in.Policies {
		for i := range p.To {
			if !slices.ContainsFunc(p.To[i].Services(), b.unknown) {
				continue
			}
			for _, r := range p.To[i].Rules {
				for _, ref := range r.BackendRefs {
					if id := ref.Subset().ID; b.unknown(ref.Name) && !slices.Contains(missing[id], p.Name) {
						missing[id] = append(missing[id], p.Name)
					}
				}
			}
		}
	}
	return missing
}

// maxNames bounds the policies in an error.
const maxNames = 5

// namesOf lists policies, the first in the alphabet first.
func namesOf(policies []string) string {
	slices.Sort(policies)
	text := "policy " + strings.Join(policies[:min(len(policies), maxNames)], ", policy ")
	if more := len(policies) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (b *builder) unknown(service string) bool { return !b.known(service) }

// addShared adds a resource that belongs to no service, or that of the previous mesh if it is equal.
func (b *builder) addShared(r *Resource) {
	k := r.key()
	if b.previous != nil {
		if old := b.previous.shared[k]; old != nil && old.equal(r) {
			r = old
		}
	}
	b.mesh.shared[k] = r
}

func (r *Resource) equal(o *Resource) bool {
	if r.Err != nil || o.Err != nil {
		return r.Err != nil && o.Err != nil && proto.Equal(r.Err.Proto(), o.Err.Proto())
	}
	return r.Message == o.Message || proto.Equal(r.Message, o.Message)
}

// sharedChanges returns the shared resources that differ from those of an earlier Mesh.
func (m *Mesh) sharedChanges(since *Mesh) (changed, removed []*Resource) {
	added, removedByKey := make(map[resourceKey]*Resource), maps.Clone(since.shared)
	for k, r := range m.shared {
		if since.shared[k] != r {
			added[k] = r
		}
		delete(removedByKey, k)
	}
	return appendInOrder(nil, added), appendInOrder(nil, removedByKey)
}
