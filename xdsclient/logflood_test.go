package xdsclient

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
)

// floodEnv has a process run TestLogOfAHostileServer with the limits on lines, which TestMain lifts for other tests.
const floodEnv = "XDSCLIENT_TEST_FLOOD"

// noWatcher is a watcher that hears nothing.
type noWatcher struct{}

func (noWatcher) ResourceChanged(_ any, _ error, done func()) { done() }
func (noWatcher) AmbientError(_ error, done func())           { done() }

// A server that sends errors, invalid resources and removals as fast as it can, each with other long texts, makes few and short
// lines, at all levels together; its NACKs are short too, and so are the errors that the client keeps.
func TestLogOfAHostileServer(t *testing.T) {
	if os.Getenv(floodEnv) == "" {
		t.Parallel()
		child := exec.Command(os.Args[0], "-test.run=^TestLogOfAHostileServer$", "-test.v", "-test.parallel=1", "-test.count=1")
		child.Env = append(os.Environ(), floodEnv+"=1")
		out, err := child.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	const responses, names = 200, 20
	for what, word := range map[string]func(name, text string, i int) string{
		"errors":  func(name, text string, _ int) string { return name + "?Internal/" + text },
		"denials": func(name, text string, _ int) string { return name + "?PermissionDenied/" + text },
		"faults":  func(name, text string, _ int) string { return name + "@" + text[:20] + "!" + text },
		"deletions": func(name, text string, i int) string {
			if i%2 == 1 {
				return "-" + name
			}
			return name + "@" + text[:20] + "=" + text
		},
	} {
		t.Run(what, func(t *testing.T) {
			(&transcriptTest{over: "delta", then: func(x *transcript) {
				for i := range names {
					x.c.Watch(x.types.clusters, fmt.Sprint("c", i), noWatcher{})
				}
				synctest.Wait()
				x.events()
				began, before := time.Now(), len(logged.String())
				nack := 0
				for i := range responses {
					text := fmt.Sprintf("%020d\n\x1b[31m%s", i, strings.Repeat("long ", 4000))
					var words []string
					for j := range names {
						words = append(words, word(fmt.Sprint("c", j), text, i))
					}
					x.servers[0].send(x, fmt.Sprint(i), words)
					synctest.Wait()
					nack = max(nack, len(x.servers[0].stream.next().nack))
				}
				for _, d := range x.c.Dump().Resources {
					if d.Failure != nil && len(d.Failure.Err.Error()) > bounds.FaultText+1000 {
						t.Errorf("%s: an error of %d bytes is kept", what, len(d.Failure.Err.Error()))
					}
				}
				text := logged.String()[before:]
				lines, seconds := strings.Count(text, "\n"), int(time.Since(began)/time.Second)
				t.Logf("%s: %d responses of %d resources in %d s: %d lines, %d bytes, NACKs of %d bytes", what, responses, names, seconds, lines, len(text), nack)
				if most := 4 * (int(bounds.ClientLines.Kind.Burst) + seconds); lines > most || len(text) > most*2*bounds.ErrorText {
					t.Errorf("%s: %d lines of %d bytes", what, lines, len(text))
				}
				if nack > bounds.NACKText+2000 {
					t.Errorf("%s: a NACK has %d bytes", what, nack)
				}
				if strings.Contains(text, "\x1b") {
					t.Errorf("%s: the log has an escape sequence", what)
				}
			}}).run(t)
		})
	}
}
