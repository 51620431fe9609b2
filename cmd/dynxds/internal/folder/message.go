package folder

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/document"
)

// readMessage reads a value by the JSON form of protobuf, and reports whether it is
// that.
func readMessage(v document.Value, m proto.Message) bool {
	if !v.IsObject() {
		// The fault that an object is expected.
		v.Object()
		return false
	}
	if err := protojson.Unmarshal(v.JSON(), m); err != nil {
		column, problem, suggestion := messageError(err)
		v.AtColumn(column).Fault(suggestion, "%s", problem)
		return false
	}
	return true
}

// protojsonError is what errors of protojson look like. Its JSON is one line.
var protojsonError = regexp.MustCompile(`^(?:proto: )?(?:\(line \d+:(\d+)\): )?(.*)$`)

// messageError takes apart an error of protojson. The column is that of the JSON, which
// nobody has seen, or 0.
func messageError(err error) (column int, problem, suggestion string) {
	// protojson varies its spaces.
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	parts := protojsonError.FindStringSubmatch(text)
	if parts == nil {
		return 0, text, ""
	}
	column, _ = strconv.Atoi(parts[1])
	problem = parts[2]
	if typeURL, ok := strings.CutPrefix(problem, "unable to resolve "); ok {
		typeURL = strings.TrimSuffix(typeURL, `: "not found"`)
		return column, "unknown type " + typeURL, "check its spelling; there are the types of Envoy's API that gRPC clients have a use for"
	}
	return column, problem, ""
}
