package statuspage

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/mesh/explain"
)

// maxHeaders bounds the headers of an RPC that is to be explained.
const maxHeaders = 100

// explainRPC returns what becomes of an RPC: of the parameters target and method, channel if several have
// the target, and of any number named header, "name: value". The answer is the lines that the command "dynxds explain" prints.
func explainRPC(ctx context.Context, values url.Values) (any, error) {
	request, err := parseRequest(values)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime/2) // Others wait for their turns meanwhile.
	defer cancel()
	e, err := explain.InProcess(ctx, request)
	if err != nil {
		return nil, err
	}
	return clipped(e.Lines()), nil
}

func parseRequest(q url.Values) (explain.Request, error) {
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
