package folder

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// readMessage reads a message in protobuf's JSON form, and reports whether it is valid.
func readMessage(v document.Value, m proto.Message) bool {
	if !v.IsObject() {
		v.Object() // reports that an object is expected
		return false
	}
	if err := protojson.Unmarshal(v.JSON(), m); err != nil {
		column, problem, suggestion := messageError(err)
		v.AtColumn(column).Fault(suggestion, "%s", problem)
		return false
	}
	return true
}

// protojsonError matches errors of protojson. The JSON is one line.
var protojsonError = regexp.MustCompile(`^(?:proto: )?(?:\(line \d+:(\d+)\): )?(.*)$`)

// messageError splits an error of protojson. The column is that of Value.JSON, or 0.
func messageError(err error) (column int, problem, suggestion string) {
	// protojson randomizes its spaces.
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	parts := protojsonError.FindStringSubmatch(text)
	if parts == nil {
		return 0, text, ""
	}
	column, _ = strconv.Atoi(parts[1])
	problem = parts[2]
	if typeURL, ok := strings.CutPrefix(problem, "unable to resolve "); ok {
		typeURL = strings.TrimSuffix(typeURL, `: "not found"`)
		return column, "unknown type " + typeURL, "check its spelling; known are the types of Envoy's API that gRPC clients use"
	}
	return column, problem, ""
}
