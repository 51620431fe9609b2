package xdsclient

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// transcriptDisk is the resource cache of the clients of a transcript with "@ disk", which run one after the other.
//
//	disk close             closes the client
//	disk start             closes the client, and starts another one, which has no watches; of a bootstrap that has node="other"
//	                       instead after "disk start node "other"", where DIR is the directory
//	held                   tells whether the client has something in memory that is to be written, and is not in use
//	disk block, unblock    has the directory be a file, and be itself again
//
// After a step that changes what a start would find in the directory, "disk a=x -b dir/*>dir/m=y" follows: cluster a with the
// text x, b as refused, the collection dir/*, and its member m. Resources are in the order of their names.
// "disk too old" follows if the file is.
type transcriptDisk struct {
	dir      string
	features [][]string
	options  []testutils.BootstrapOption
	// content is what a start would have found after the last step.
	content string
	blocked bool
}

// useDisk has the transcript go on with a client that has a resource cache. The client before it has no watches.
func (x *transcript) useDisk(test *transcriptTest) {
	x.disk = &transcriptDisk{dir: filepath.Join(x.t.TempDir(), "cache"), features: make([][]string, len(x.servers))}
	x.disk.options = append(test.authorities, testutils.Authority("auth", "", nil), cacheIn(x.disk.dir))
	for i, s := range x.servers {
		if i < len(test.servers) {
			x.disk.features[i] = strings.Fields(test.servers[i])
		}
		if s.delta {
			x.disk.features[i] = append(x.disk.features[i], "delta")
		}
	}
	x.restart()
}

// restart closes the client and starts another one.
func (x *transcript) restart(options ...testutils.BootstrapOption) {
	x.c.Close()
	x.watches, x.meter = make(map[string]*transcriptWatch), nil
	x.c = x.another(options...)
	x.target = x.c
}

// another makes a client.
func (x *transcript) another(options ...testutils.BootstrapOption) *XDSClient {
	f := make(fleet, len(x.servers))
	for i, s := range x.servers {
		f[i] = s.script
	}
	return f.clientWith(x.disk.features, append(slices.Clone(x.disk.options), options...)...)
}

func (x *transcript) doDisk(step string) {
	x.t.Helper()
	away := x.disk.dir + ".away"
	switch verb, rest, _ := strings.Cut(step, " "); verb {
	case "close":
		x.c.Close()
	case "start":
		var options []testutils.BootstrapOption
		if key, value, ok := strings.Cut(rest, " "); ok {
			options = append(options, testutils.TopLevel(key, json.RawMessage(strings.ReplaceAll(value, "DIR", x.disk.dir))))
		}
		x.restart(options...)
	case "block":
		xdstest.NoError(x.t, os.Rename(x.disk.dir, away))
		xdstest.NoError(x.t, os.WriteFile(x.disk.dir, nil, 0o600))
		x.disk.blocked = true
	case "unblock":
		xdstest.NoError(x.t, os.Remove(x.disk.dir))
		xdstest.NoError(x.t, os.Rename(away, x.disk.dir))
		x.disk.blocked = false
	default:
		x.t.Fatalf("unknown step \"disk %s\"", step)
	}
}

// events returns what a start would find if that has changed.
func (d *transcriptDisk) events(x *transcript) []string {
	if d == nil || d.blocked {
		return nil
	}
	synctest.Wait()
	records, _, err := cacheOf(x.c.config).Load(time.Now())
	var words []string
	if err != nil {
		if !strings.Contains(err.Error(), "too old") {
			x.t.Error(err)
		}
		words = append(words, "too old")
	}
	for i := range records {
		r := &records[i]
		c, err := dynwire.UnmarshalConstraints([]byte(r.Constraints))
		xdstest.NoError(x.t, err)
		word := r.Name
		if !c.IsZero() {
			word += c.String()
		}
		if r.Member != "" {
			word += ">" + r.Member
		}
		switch {
		case r.Refused:
			word = "-" + word
		case len(r.Resource) > 0:
			var m clusterv3.Cluster
			xdstest.NoError(x.t, proto.Unmarshal(wire.ParseWrapper(r.Resource, r.TypeURL).Value, &m))
			word += "=" + m.GetAltStatName()
		}
		words = append(words, word)
	}
	slices.SortFunc(words, func(a, b string) int { return strings.Compare(strings.TrimPrefix(a, "-"), strings.TrimPrefix(b, "-")) })
	content := strings.ReplaceAll(strings.Join(words, " "), collectionDir, "dir/")
	if content == d.content {
		return nil
	}
	d.content = content
	return []string{strings.TrimSpace(fmt.Sprint("disk ", content))}
}
