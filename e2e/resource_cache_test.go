package e2e_test

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/testutils"
)

// cacheTest is a mesh whose clients keep their resources on disk. Its service is its own, as Explain finds a
// channel by its target.
type cacheTest struct {
	*mesh
	dir, service string
}

func newCacheTest(t *testing.T) *cacheTest {
	directly(t, "the management server of the client is the relay, which stays reachable")
	return &cacheTest{newMesh(t), cacheDir(t), strings.ToLower(path.Base(t.Name())+"."+path.Base(path.Dir(t.Name()))) + ".example.com"}
}

// cacheDir makes a directory. At the end of the test a client that was closed may still write in it.
func cacheDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "resources")
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		for os.RemoveAll(dir) != nil {
		}
	})
	return dir
}

func (c *cacheTest) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	c.t.Helper()
	return dialWith(c.t, "xds:///"+c.service, c.bootstrap(c.onDisk()), opts...)
}

func (c *cacheTest) onDisk() testutils.BootstrapOption {
	return testutils.TopLevel("resource_cache", map[string]any{"directory": c.dir})
}

// run makes RPCs as a program that then ends, and waits until the file has what it used.
func (c *cacheTest) run(backend *testutils.Backend) {
	c.t.Helper()
	cc := c.dial()
	mustReach(c.t, cc, unary, backend)
	cc.Close()
	c.awaitFile(func(content []byte) bool { return bytes.Contains(content, []byte(typeurl.Endpoints)) })
}

// path returns the path of the file that was written last, or "". A client that was closed may still hold another.
func (c *cacheTest) path() (newest string) {
	var written time.Time
	paths, _ := filepath.Glob(filepath.Join(c.dir, "*.resources"))
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 && info.ModTime().After(written) {
			newest, written = path, info.ModTime()
		}
	}
	return newest
}

// awaitFile waits until the content of the file is as it should be.
func (c *cacheTest) awaitFile(ok func(content []byte) bool) {
	c.t.Helper()
	ctx := testutils.Context(c.t)
	for {
		content, _ := os.ReadFile(c.path())
		if len(content) > 0 && ok(content) {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			c.t.Fatalf("the file %s has %d bytes, and not what it should have", c.path(), len(content))
		}
	}
}

// A channel that starts while the control plane cannot be reached uses the resources of the last one, and its
// explanation says so. When the control plane is reachable again, the channel uses its resources, and no RPC fails.
func TestRPCsStartFromDisk(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		for name, away := range map[string]func(*mesh){
			"down":    func(m *mesh) { m.Stop() },
			"refuses": func(m *mesh) { m.RefuseStreams(errors.New("not now")) },
		} {
			xdstest.Parallel(t, name, func(t *testing.T) {
				c := newCacheTest(t)
				old, current := testutils.StartBackend(t, "old"), testutils.StartBackend(t, "current")
				c.serve(c.service, "cluster", old)
				c.run(old)
				away(c.mesh)
				c.serve(c.service, "another", current)
				load := loadOn(t, c.dial(), old)
				e, err := explain.InProcess(testutils.Context(t), explain.Request{Target: "xds:///" + c.service, Method: unaryMethod})
				xdstest.NoError(t, err)
				const want = "from disk, 0 minutes old"
				if text := e.Text(); e.Listener.FromDisk != "0 minutes old" || !strings.Contains(text, want) || len(e.Notes) == 0 {
					t.Errorf("the explanation does not say %q:\n%s", want, text)
				}
				c.RefuseStreams(nil)
				if name == "down" {
					c.restart()
				}
				load.await(t, current)
				load.Stop(t)
			})
		}
	})
}
