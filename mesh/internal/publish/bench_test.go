package publish_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// BenchmarkPublish_OneOfManyServices is the cost of new endpoints of one service, of a service that comes and goes, and of a policy for
// a service, while nothing else changes. Like services of Kubernetes, the services have a namespace and several names.
func BenchmarkPublish_OneOfManyServices(b *testing.B) {
	service := func(i, generation int) *meshroute.Service {
		name, namespace := fmt.Sprintf("s%d", i), fmt.Sprintf("ns%d", i%50)
		s := &meshroute.Service{Name: name + "." + namespace + ":80", Source: meshroute.Source{File: namespace + "/" + name}}
		for _, port := range []string{":80", ":grpc", ""} {
			if port != ":80" {
				s.Aliases = append(s.Aliases, meshroute.Alias{Name: name + "." + namespace + port})
			}
			s.Aliases = append(s.Aliases, meshroute.Alias{Name: name + "." + namespace + ".svc.cluster.local" + port},
				meshroute.Alias{Name: name + port, Namespace: namespace})
		}
		for e := range 10 {
			s.Endpoints = append(s.Endpoints, meshroute.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:%d", i/256, i%256, e, 1000+generation%2)})
		}
		return s
	}
	policy := func(name, service string, generation int) *meshroute.Policy {
		filter := policytest.SetHeader("x", fmt.Sprint(generation))
		return policytest.New(name, meshroute.TargetRef{}, policytest.To(service, meshpolicy.Rule{Filters: []meshpolicy.Filter{filter}}))
	}
	for what, change := range map[string]func(c *folder.Content, generation int){
		"endpoints": func(c *folder.Content, generation int) {
			i := len(c.Services) / 2
			c.Services = slices.Clone(c.Services)
			c.Services[i] = service(i, generation)
		},
		"a service": func(c *folder.Content, generation int) {
			if generation%2 == 1 {
				c.Services = append(slices.Clip(c.Services), service(len(c.Services), 0))
			}
		},
		"a policy": func(c *folder.Content, generation int) {
			c.Policies = slices.Clone(c.Policies)
			c.Policies[7] = policy("policy-7", c.Services[7].Name, generation)
		},
	} {
		for _, n := range []int{500, 5000} {
			b.Run(fmt.Sprint(what, " of ", n), func(b *testing.B) {
				content := &folder.Content{Dir: "."}
				for i := range n {
					content.Services = append(content.Services, service(i, 0))
				}
				for i := range n / 10 {
					content.Policies = append(content.Policies, policy(fmt.Sprint("policy-", i), content.Services[i].Name, 0))
				}
				p := publish.New(controlplane.NewStore(), publish.Options{Authority: "mesh"})
				_, err := p.Publish(context.Background(), content)
				xdstest.NoError(b, err)
				generation := 0
				b.ReportAllocs()
				for b.Loop() {
					generation++
					next := *content
					change(&next, generation)
					_, err := p.Publish(context.Background(), &next)
					xdstest.NoError(b, err)
				}
			})
		}
	}
}
