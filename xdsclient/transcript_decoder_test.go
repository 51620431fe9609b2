package xdsclient

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/changes"
)

// transcriptDecoder is the decoder of clusters of a transcript.
type transcriptDecoder struct {
	mu sync.Mutex
	// takes is how long a cluster takes, and spoiled says that none can be decoded.
	takes   time.Duration
	spoiled bool
	// lasts has for each cluster that was decoded the text of the version before.
	lasts []string
}

// newTranscriptDecoder has a type of clusters use a decoder.
func newTranscriptDecoder(typ *ResourceType) *transcriptDecoder {
	d, decode := &transcriptDecoder{}, typ.Decode
	typ.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
		d.mu.Lock()
		takes, spoiled := d.takes, d.spoiled
		d.mu.Unlock()
		time.Sleep(takes)
		value, err := decode(a, o)
		if c, _ := value.(*clusterv3.Cluster); c != nil {
			return d.decoded(c, o)
		}
		if spoiled {
			return nil, errors.New("spoiled")
		}
		return value, err
	}
	typ.Ignored = ignoredBy
	return d
}

func (d *transcriptDecoder) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// decoded notes what a cluster was decoded after.
func (d *transcriptDecoder) decoded(c *clusterv3.Cluster, o DecodeOptions) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, _ := o.Last.(*clusterv3.Cluster)
	text := last.GetAltStatName()
	d.lasts = append(d.lasts, fmt.Sprintf("%s after %s", c.GetName(), cmp.Or(text, "nothing")))
	if d.spoiled {
		return nil, errors.New("spoiled")
	}
	return c, nil
}

// take returns lasts, and forgets them.
func (d *transcriptDecoder) take() (lasts []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lasts, d.lasts = d.lasts, nil
	slices.Sort(lasts)
	return lasts
}

// ignoredBy returns the fields that the text of a cluster lists behind a colon.
func ignoredBy(value any) (list []Ignored) {
	c, _ := value.(*clusterv3.Cluster)
	_, paths, _ := strings.Cut(c.GetAltStatName(), ":")
	for _, path := range strings.FieldsFunc(paths, func(r rune) bool { return r == ',' }) {
		path, matters := strings.CutPrefix(path, "!")
		part := Ignored{Path: path, Reason: "why not"}
		if matters {
			part.Severity = SeverityWarning
		}
		list = append(list, part)
	}
	return list
}

// logLine matches what a transcript tells of the log.
var logLine = regexp.MustCompile(`(?:WARNING: .*|INFO: .* in use without.*)`)

// tellLog returns the lines since the last time as one text.
func (x *transcript) tellLog() (told []string) {
	text := logged.String()
	if lines := logLine.FindAllString(text[x.logged:], -1); lines != nil {
		told = []string{strings.Join(lines, " | ")}
	}
	x.logged = len(text)
	return told
}

// tellChanges returns the changes since the last time, the first first.
func (x *transcript) tellChanges() (told []string) {
	synctest.Wait()
	for _, c := range slices.Backward(changes.Recent()) {
		if c.Number <= x.changed {
			continue
		}
		x.changed = c.Number
		text := string(c.Kind)
		if c.Name != "" {
			text += fmt.Sprintf(" %s %s %s→%s", c.Type, c.Name, c.From, c.To)
		}
		text += fmt.Sprintf(" at %v", c.Time.Sub(x.began))
		if len(x.servers) > 1 {
			text += " by " + serverNamed(c.Server)
		}
		if c.Detail != "" {
			text += ": " + c.Detail
		}
		told = append(told, text)
	}
	return told
}
