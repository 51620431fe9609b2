package publish_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/publish"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// BenchmarkPublish_OneOfManyServices is the cost of new endpoints of one service, beside which nothing changes. The services are as
// those of Kubernetes: with a namespace, and several names.
func BenchmarkPublish_OneOfManyServices(b *testing.B) {
	for _, n := range []int{500, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
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
			content := &folder.Content{Dir: "."}
			for i := range n {
				content.Services = append(content.Services, service(i, 0))
			}
			p := publish.New(controlplane.NewStore(), publish.Options{Authority: "mesh"}, publish.Streams{})
			_, err := p.Publish(context.Background(), content)
			xdstest.NoError(b, err)
			generation := 0
			for b.Loop() {
				generation++
				next := *content
				next.Services = slices.Clone(content.Services)
				next.Services[n/2] = service(n/2, generation)
				_, err := p.Publish(context.Background(), &next)
				xdstest.NoError(b, err)
			}
		})
	}
}
