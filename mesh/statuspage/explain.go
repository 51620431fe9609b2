package statuspage

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dynxds/dynxds/mesh/explain"
)

// Bounds on the requests for explanations.
const (
	maxHeaders  = 100
	explainTime = 5 * time.Second
)

// explain answers what becomes of an RPC: of the parameters target and method, channel if several have
// the target, and of any number named header, "name: value". The answer is the lines that the command "dynxds explain" prints.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) {
	request, err := parseRequest(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainTime)
	defer cancel()
	select {
	case h.asking <- struct{}{}:
	case <-ctx.Done():
		refuse(w, http.StatusServiceUnavailable, "other RPCs are being explained; try again")
		return
	}
	e, err := func() (*explain.Explanation, error) {
		defer func() { <-h.asking }() // others do not wait for this browser to read
		return explain.InProcess(ctx, request)
	}()
	if err != nil {
		refuse(w, http.StatusBadRequest, clip(err.Error(), maxError))
		return
	}
	h.writeJSON(w, clipped(e.Lines()))
}

func parseRequest(r *http.Request) (explain.Request, error) {
	q := r.URL.Query()
	request := explain.Request{Target: q.Get("target"), Method: q.Get("method"), Authority: q.Get("authority"), Headers: map[string][]string{}}
	if text := q.Get("channel"); text != "" {
		var err error
		if request.Channel, err = strconv.ParseUint(text, 10, 64); err != nil {
			return request, fmt.Errorf("channel: %.60q is not a number", text)
		}
	}
	if n := len(q["header"]); n > maxHeaders {
		return request, fmt.Errorf("header: %d, more than %d", n, maxHeaders)
	}
	for _, line := range q["header"] {
		key, value, ok := strings.Cut(line, ":")
		if key = strings.ToLower(strings.TrimSpace(key)); !ok || key == "" {
			return request, fmt.Errorf("header %.60q: want NAME: VALUE", line)
		}
		request.Headers[key] = append(request.Headers[key], strings.TrimSpace(value))
	}
	return request, nil
}
