package etcdtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/internal/store"
)

// documents is the number of documents of BenchmarkDocuments, half of them services and half policies.
const documents = 10_000

func document(i, port int) (name, text string) {
	if i%2 == 0 {
		return fmt.Sprintf("service-%05d.yaml", i), service(fmt.Sprintf("service-%d", i), fmt.Sprintf("10.0.0.1:%d", port))
	}
	return fmt.Sprintf("policy-%05d.yaml", i), fmt.Sprintf(`kind: MeshHTTPRoute
metadata: {name: policy-%d}
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: service-%d}
    rules:
    - matches: [{path: {type: Prefix, value: /}}]
      backendRefs: [{kind: MeshService, name: service-%d, weight: %d}]
`, i, i-1, i-1, port)
}

// plane is what a control plane does with documents, without clients.
type plane struct {
	b         *testing.B
	publisher *publish.Publisher
}

func newPlane(b *testing.B) *plane {
	return &plane{b, publish.New(controlplane.NewStore(), publish.Options{}, publish.Streams{})}
}

// publish publishes content, and checks how many resources have changed.
func (p *plane) publish(content *folder.Content, err error, changed int) {
	p.b.Helper()
	xdstest.NoError(p.b, err)
	summary, err := p.publisher.Publish(p.b.Context(), content)
	xdstest.NoError(p.b, err)
	if summary.Changed != changed {
		p.b.Fatalf("%d resources have changed, want %d", summary.Changed, changed)
	}
}

// What it costs to start, and to take up a change of one document, from a store and from a folder.
func BenchmarkDocuments(b *testing.B) {
	const resources = documents / 2 * 4
	b.Run("folder", func(b *testing.B) {
		dir := b.TempDir()
		yesterday := time.Now().Add(-24 * time.Hour)
		for i := range documents {
			name, text := document(i, 1)
			path := filepath.Join(dir, name)
			xdstest.NoError(b, os.WriteFile(path, []byte(text), 0o600))
			xdstest.NoError(b, os.Chtimes(path, yesterday, yesterday))
		}
		b.Run("load", func(b *testing.B) {
			for b.Loop() {
				content, err := folder.New(dir).Read()
				newPlane(b).publish(content, err, resources)
			}
		})
		b.Run("change", func(b *testing.B) {
			p, reader := newPlane(b), folder.New(dir)
			content, err := reader.Read()
			p.publish(content, err, resources)
			port := 1
			for b.Loop() {
				port++
				name, text := document(0, port)
				cmdtest.Write(b, dir, name, text)
				content, err := reader.Read()
				p.publish(content, err, 1)
			}
		})
	})
	b.Run("store", func(b *testing.B) {
		c := newCluster(b, 1)
		ctx := b.Context()
		for i := 0; i < documents; i += 100 {
			var ops []clientv3.Op
			for j := range 100 {
				name, text := document(i+j, 1)
				ops = append(ops, clientv3.OpPut(key(name), text))
			}
			_, err := c.client.Txn(ctx).Then(ops...).Commit()
			xdstest.NoError(b, err)
		}
		s := c.open(prefix, 0)
		open := func(b *testing.B, p *plane) *store.Source {
			f := store.Follow(ctx, s, nil, slog.New(slog.DiscardHandler))
			content, err := f.Read(ctx)
			p.publish(content, err, resources)
			return f
		}
		b.Run("load", func(b *testing.B) {
			for b.Loop() {
				open(b, newPlane(b)).Close()
			}
		})
		b.Run("change", func(b *testing.B) {
			p := newPlane(b)
			f := open(b, p)
			defer f.Close()
			content, err := f.Read(ctx)
			xdstest.NoError(b, err)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			port := 1
			for b.Loop() {
				port++
				name, text := document(0, port)
				c.put(key(name), text)
				for changed := content; ; {
					if !f.Wait(ctx, time.Time{}) {
						b.Fatal("the watch has ended")
					}
					changed, err = f.Read(ctx)
					xdstest.NoError(b, err)
					if changed != content {
						content = changed
						break
					}
				}
				p.publish(content, err, 1)
			}
		})
	})
}
