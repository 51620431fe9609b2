package meshroute

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// missingBackends adds what is in place of a missing service, and of its subsets, that policies send requests to.
func (c *compiler) missingBackends() {
	policies := make(map[string][]string)
	for _, p := range c.mesh.mention(c.service).from {
		for _, r := range p.Rules {
			for _, ref := range r.BackendRefs {
				if id := ref.Subset(); ref.Name == c.service && !slices.Contains(policies[id], p.Policy.Name) {
					policies[id] = append(policies[id], p.Policy.Name)
				}
			}
		}
	}
	service, _, _ := strings.Cut(c.service, ";") // what follows says why no service can have the name
	problem := "the mesh has no service"
	if strings.HasSuffix(c.service, meshpolicy.NoGrant) {
		problem = "no ReferenceGrant allows the service"
	}
	for _, id := range slices.Sorted(maps.Keys(policies)) {
		err := status.Newf(codes.NotFound, "%s %q, to which requests are sent by %s", problem, service, namesOf(policies[id]))
		c.others = append(append(c.others, c.mesh.naming.emptyCluster(missingID(id), service)...),
			&Resource{TypeURL: ClusterType, Name: c.mesh.naming.resource(ClusterType, id), Service: service, Err: err})
	}
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

// Equal reports whether two resources of one name have equal contents, or errors.
func (r *Resource) Equal(o *Resource) bool {
	if r.Err != nil || o.Err != nil {
		return r.Err != nil && o.Err != nil && proto.Equal(r.Err.Proto(), o.Err.Proto())
	}
	return r.Message == o.Message || proto.Equal(r.Message, o.Message)
}
