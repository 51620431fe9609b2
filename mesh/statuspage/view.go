package statuspage

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
)

// view is what one browser is shown at one moment.
type view struct {
	ctx     context.Context
	handler *handler
	snap    *snapshot
	values  url.Values // of the query
}

// sections are the parts of the page that a browser asks for, by the names that it knows. Each
// returns a value for JSON, of bounded size.
var sections = map[string]func(*view, wanted) any{
	"overview":  (*view).overview,
	"channels":  (*view).channels,
	"clients":   (*view).clients,
	"graph":     (*view).graph,
	"resources": (*view).resources,
	"clusters":  (*view).clusters,
	"changes":   (*view).changes,
	"peers":     (*view).peers,
	"served":    (*view).served,
}

// data returns the sections that a query asks for by name, each with its version; those of which the browser has that version are left out.
func (h *handler) data(ctx context.Context, values url.Values) (any, error) {
	v := &view{ctx, h, h.snapshots.get(h), values}
	versions := make(map[string]string)
	answer := map[string]any{"now": time.Now(), "versions": versions}
	for _, name := range values["show"] {
		if _, ok := sections[name]; !ok {
			return nil, fmt.Errorf("show: there is no section %.20q", name)
		}
		if versions[name] != "" {
			continue
		}
		content := v.section(name)
		versions[name] = strconv.FormatUint(maphash.Bytes(h.seed, content), 36)
		if values.Get(name+".version") != versions[name] {
			answer[name] = content
		}
	}
	return answer, nil
}

// section returns the content of a section.
func (v *view) section(name string) json.RawMessage {
	return clipped(sections[name](v, wantedOf(name, v.values)))
}

// answerTime bounds how long an answer waits for its turn, and for balancers.
const answerTime = 10 * time.Second

// answer answers with what is made of a query, as JSON. While it is written others have their turns.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, of func(context.Context, url.Values) (any, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	select {
	case h.turns <- struct{}{}:
	case <-ctx.Done():
		refuse(w, http.StatusServiceUnavailable, "other answers are being made; try again")
		return
	}
	content, err := func() (content []byte, err error) {
		defer func() { <-h.turns }()
		value, err := of(ctx, r.URL.Query())
		if err != nil {
			return nil, err
		}
		return json.Marshal(value)
	}()
	if err != nil {
		refuse(w, http.StatusBadRequest, clip(err.Error(), maxError))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.patience))
	_, _ = w.Write(content)
}

// wanted is what a browser wants of one section.
type wanted struct {
	section string
	values  url.Values
	// text is what the section's list is searched for, in lower case.
	text string
}

func wantedOf(section string, values url.Values) wanted {
	return wanted{section, values, strings.ToLower(strings.TrimSpace(values.Get(section + ".q")))}
}

// get returns a parameter: "from" is where the shown part of the section's list begins.
func (w wanted) get(name string) string { return w.values.Get(w.section + "." + name) }

// finds reports whether the search finds something by one of its texts.
func (w wanted) finds(texts ...string) bool {
	return w.text == "" || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), w.text) })
}

// A list is the part of a longer list that is shown.
type list[T any] struct {
	// Total is the length of the list, and Found that of what the search leaves of it.
	Total int `json:"total"`
	Found int `json:"found"`
	// From is the index of the first item among those found.
	From  int `json:"from"`
	Items []T `json:"items"`
}

// same is the item of a list whose elements are shown as they are.
func same[T any](item T) T { return item }

// listOf returns the part of a list that is wanted: of the elements that are found, at most limit items from an index on, or
// the last ones if the list has become shorter. Only these are made.
func listOf[S, T any](w wanted, all []S, limit int, isFound func(S) bool, item func(S) T) list[T] {
	var found []S
	for _, s := range all {
		if isFound(s) {
			found = append(found, s)
		}
	}
	from, _ := strconv.Atoi(w.get("from"))
	if from = max(0, from); from >= len(found) {
		from = max(0, (len(found)-1)/limit*limit)
	}
	l := list[T]{Total: len(all), Found: len(found), From: from, Items: []T{}}
	for _, s := range found[from:min(from+limit, len(found))] {
		l.Items = append(l.Items, item(s))
	}
	return l
}

// Bounds on texts, in bytes. Names may have 64 KiB, and an error lists up to 100.
const (
	maxName  = 300
	maxError = 4000
)

// clipped returns a value as JSON with its texts from outside shortened.
func clipped(value any) json.RawMessage {
	content, _ := json.Marshal(value) // of texts, numbers and times, which cannot fail
	return livestate.Cut(content, maxName, maxError, clip)
}

// clip shortens text from outside, and appends its length.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s (%d bytes)", faults.Shorten(s, limit), len(s))
}

// first returns the first elements of a list, which are not nil.
func first[T any](list []T, limit int) []T {
	return append([]T{}, list[:min(len(list), limit)]...)
}
