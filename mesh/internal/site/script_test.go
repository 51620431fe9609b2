package site

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// What a control plane makes of documents, one change after the other. The steps are:
//
//	options permissive separate withdrawal=DURATION   at first
//	have WORD...       there are these documents, and the log says this when they are read: "a" is a service, "a0" one without endpoints,
//	                   "policy:p" a policy for a, "Listener:l" a resource, and "a/2" another version of a
//	file NAME TEXT     there is another file, or is not, if the text is "gone"
//	read               they are read again, and are as before
//	wait DURATION      what is withheld may be due
//	published          the words that are published
//	state              what the status page and health say
func TestScripts(t *testing.T) { golden.Scripts(t, "testdata/*.txt", 0, beginScript) }

// memory are documents in memory.
type memory struct {
	files    map[string]string
	parser   folder.Parser
	separate bool
	changed  chan struct{}
	content  *folder.Content
	err      error
}

// change makes Read return something else.
func (m *memory) change() {
	if m.content, m.err = m.parser.Parse(maps.Clone(m.files)); m.err == nil {
		m.content.Separate = m.separate
	}
}

func (m *memory) Read(context.Context) (*folder.Content, error) { return m.content, m.err }
func (m *memory) Changed() <-chan struct{}                      { return m.changed }
func (m *memory) Again() time.Time                              { return time.Time{} }
func (m *memory) GoneSince() time.Time                          { return time.Time{} }
func (m *memory) Close()                                        {}

// textOf returns the document of a word.
func textOf(word string) string {
	name, version, _ := strings.Cut(word, "/")
	kind, named, isOther := strings.Cut(name, ":")
	switch {
	case kind == "policy":
		return fmt.Sprintf("{kind: MeshHTTPRoute, name: %s, spec: {to: [{targetRef: {kind: MeshService, name: a}, rules: [{matches: [{path: {exact: /p.S/M%s}}], filters: []}]}]}}", named, version)
	case isOther:
		return fmt.Sprintf(`{kind: Resource, resource: {"@type": type.googleapis.com/envoy.config.listener.v3.Listener, name: %s, api_listener: {api_listener: {
			"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: "%s", rds: {route_config_name: a, config_source: {ads: {}}},
			http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}}}`, named, version)
	case strings.HasSuffix(name, "0"):
		return "{kind: Service, name: " + strings.TrimSuffix(name, "0") + "}"
	}
	return fmt.Sprintf("{kind: Service, name: %s, endpoints: [{address: '10.0.0.1:80', weight: %s}]}", name, max(version, "1"))
}

func beginScript(t testing.TB) (step func(string) string) {
	documents, words := &memory{files: map[string]string{}, changed: make(chan struct{}, 1)}, map[string]bool{}
	documents.parser.Dir = "/mesh"
	opts := Options{Documents: documents, Place: "folder", Dir: "/mesh", WithdrawalDelay: 10 * time.Second}
	log := &xdstest.Log{}
	opts.Serve.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "took" {
			return slog.Attr{}
		}
		return a
	}}))
	var p *plane
	var published atomic.Pointer[folder.Content] // withheld documents are published at a time of the plane's own
	opts.OnLeftOut = func([]meshroute.Report) { published.Store(p.published) }
	start := func() {
		p = newPlane(opts)
		p.onFirst = func() {}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx) })
		t.Cleanup(func() {
			stop()
			running.Wait()
			services{p.ads, p.loads}.Close()
		})
	}
	said := 0
	logged := func() string {
		synctest.Wait()
		text := log.String()[said:]
		said += len(text)
		return strings.ReplaceAll(strings.TrimSpace(text), "\n", " | ")
	}
	return func(line string) string {
		command, rest, _ := strings.Cut(line, " ")
		if p == nil && command != "options" {
			start()
		}
		switch command {
		case "options":
			for _, word := range strings.Fields(rest) {
				switch name, value, _ := strings.Cut(word, "="); name {
				case "permissive":
					opts.Permissive = true
				case "separate":
					documents.separate = true
				case "withdrawal":
					opts.WithdrawalDelay, _ = time.ParseDuration(value)
				}
			}
			return ""
		case "have":
			maps.DeleteFunc(documents.files, func(name, _ string) bool { return words[name] })
			for _, word := range strings.Fields(rest) {
				documents.files[word], words[word] = textOf(word), true
			}
			documents.change()
		case "file":
			name, text, _ := strings.Cut(rest, " ")
			if documents.files[name] = text; text == "gone" {
				delete(documents.files, name)
			}
			documents.change()
		case "wait":
			after, err := time.ParseDuration(rest)
			xdstest.NoError(t, err)
			time.Sleep(after)
			return logged()
		case "published":
			var list []string
			add := func(at meshroute.Source) { list = append(list, strings.TrimPrefix(at.File, "/mesh/")) }
			if c := published.Load(); c != nil {
				for _, s := range c.Services {
					add(s.Source)
				}
				for _, p := range c.Policies {
					add(p.Source)
				}
				for _, r := range c.Resources {
					add(r.Source)
				}
			}
			return strings.Join(slices.DeleteFunc(slices.Sorted(slices.Values(list)), func(file string) bool { return !words[file] }), " ")
		case "state":
			s := p.state.State()
			text := strings.Join(s.Text(true), "; ")
			if s.Published != nil {
				text += fmt.Sprintf(" [version %d, %d services, reports %q]", s.Published.Version, s.Published.Services, s.Published.Reports)
			}
			return strings.TrimSpace(text)
		}
		documents.changed <- struct{}{}
		return logged()
	}
}
