package errorcode

import "regexp"

func words(expression string) *regexp.Regexp { return regexp.MustCompile(expression) }

const (
	service   = "kind: Service\nname: shop\n"
	goodRoute = "kind: MeshHTTPRoute\nname: shop\nspec:\n  targetRef: {kind: Mesh}\n  to:\n  - targetRef: {kind: MeshService, name: shop}\n    rules:\n"
	bootstrap = `{"xds_servers": [{"server_uri": "dns:///xds:443", "channel_creds": [{"type": "insecure"}]}], "node": {"id": "a"}`
)

// table has the codes in the order in which errors are compared with them. IDs do not change, and are not used again.
var table = []Code{
	{
		ID: "D0101", Title: "a tab indents a line", words: words(`a tab in the indentation`),
		Cause: "YAML is indented by spaces only. Replace the tab, and set the editor to insert spaces.",
		Wrong: service + "tls:\n\tmode: simple\n",
		Right: service + "tls:\n  mode: simple\n",
	},
	{
		ID: "D0103", Title: "anchors, aliases and tags of YAML are not used", words: words(`are not used here|unknown anchor`),
		Cause: "A document is read as it stands, without references. Write the value out; text that begins with &, * or ! needs quotes.",
		Wrong: "kind: Service\nname: &shop shop\n",
		Right: "kind: Service\nname: shop\n",
	},
	{
		ID: "D0102", Title: "the text is not YAML or JSON", words: words(`^this is not (YAML|JSON)|more text after the end`),
		Cause: "The structure breaks at the line shown: an indentation that fits no line above, a missing colon, or a quote or bracket that is not closed.",
		Wrong: service + "tls:\n    mode: simple\n  sni: shop\n",
		Right: service + "tls:\n  mode: simple\n  sni: shop\n",
	},
	{
		ID: "D0104", Title: "the file is too large, too deep or not UTF-8", words: words(`bytes, more than \d+$|nested more than|not UTF-8|the name of a field must be text`),
		Cause: "A file has at most 16 MiB, is nested at most 100 levels deep, and has UTF-8 text in its fields' names.",
		Wrong: service + "[tls]: {mode: simple}\n",
		Right: service + "tls: {mode: simple}\n",
	},
	{
		ID: "D0105", Title: "a number begins with 0", words: words(`is octal for some`),
		Cause: "Programs disagree whether such a number is octal. Leave the 0 out, or put text in quotes.",
		Wrong: service + "localities: [{region: eu, weight: 010}]\n",
		Right: service + "localities: [{region: eu, weight: 10}]\n",
	},
	{
		ID: "D0201", Title: "a field is unknown", words: words(`unknown field`),
		Cause: "The kind has no field of this name here: it is misspelt, or indented below the wrong field.",
		Wrong: service + "endpoint: []\n",
		Right: service + "endpoints: []\n",
	},
	{
		ID: "D0202", Title: "the kind is missing or unknown", words: words(`(^|: )the document (has no kind|is an xDS resource without kind)|^(kind|type): unknown value|replace it by "kind: Service"|a document for each`),
		Cause: "A document needs a kind that dynxds reads. A raw xDS resource is wrapped in kind Resource; a Service of Kubernetes is read from the cluster by dynxds-kubernetes.",
		Wrong: "kind: Servce\nname: shop\n",
		Right: service,
	},
	{
		ID: "D0203", Title: "a value is none of the allowed ones", words: words(`unknown value`),
		Cause: "The field takes one of a few words, and case counts.",
		Wrong: service + "loadBalancing: {policy: ringhash}\n",
		Right: service + "loadBalancing: {policy: RingHash}\n",
	},
	{
		ID: "D0204", Title: "a number is not in its range", words: words(`expected (an integer|a number) from .*, found the number`),
		Cause: "The message has the smallest and the largest value.",
		Wrong: service + "localities: [{region: eu, weight: -1}]\n",
		Right: service + "localities: [{region: eu, weight: 1}]\n",
	},
	{
		ID: "D0205", Title: "a list or text is empty", words: words(`found an empty (string|list)`),
		Cause: "The field needs a value, or at least one item. If nothing is to be said, leave the field out where it is optional.",
		Wrong: service + "tls: {mode: simple, providers: {identity: \"\"}}\n",
		Right: service + "tls: {mode: simple, providers: {identity: default}}\n",
	},
	{
		ID: "D0206", Title: "a field is there twice", words: words(`expected the key once|expected the field once`),
		Cause: "Keep one of the two. If the second one begins another document, write --- on a line before it.",
		Wrong: "kind: Service\nname: shop\nname: cart\n",
		Right: "kind: Service\nname: shop\n---\nkind: Service\nname: cart\n",
	},
	{
		ID: "D0207", Title: "a required field is missing", words: words(`is missing|needs? (the field|at least one)|has no (name|labels|tags)$|has no name;|is needed|found nothing`),
		Cause: "The message names the field. A field that is indented wrongly belongs to another object, and counts as missing.",
		Wrong: "kind: Service\nendpoints: []\n",
		Right: "kind: Service\nname: shop\nendpoints: []\n",
	},
	{
		ID: "D0208", Title: "a value has the wrong type", words: words(`expected .*, found `),
		Cause: "A list begins with - or [, an object has fields, and text that looks like a number, a date or true needs quotes.",
		Wrong: service + "endpoints: 10.0.0.1:8080\n",
		Right: service + "endpoints: [{address: \"10.0.0.1:8080\"}]\n",
	},
	{
		ID: "D0301", Title: "two documents define the same", words: words(`^(.*: )?duplicate |another tls by service`),
		Cause: "Two documents of the folder have the same kind and name. Rename one, or remove it.",
		Wrong: service + "---\n" + service,
		Right: service + "---\nkind: Service\nname: cart\n",
	},
	{
		ID: "D0302", Title: "a name has no service", words: words(`the mesh has no service`),
		Cause: "A policy sends RPCs to a service that no document of the folder defines. Correct the name, or add the service.",
		Wrong: service + "---\n" + goodRoute + "    - default: {backendRefs: [{kind: MeshService, name: shp}]}\n",
		Right: service + "---\n" + goodRoute + "    - default: {backendRefs: [{kind: MeshService, name: shop}]}\n",
	},
	{
		ID: "D0303", Title: "clients would reject a resource", words: words(`[Cc]lients (would )?reject|clients do not find`),
		Cause: "What the document gives is no valid configuration of xDS; the message has the words of the client that would reject it.",
		Wrong: service + "outlierDetection: {failure_percentage_threshold: 101}\n",
		Right: service + "outlierDetection: {failure_percentage_threshold: 100}\n",
	},
	{
		ID: "D0209", Title: "two fields contradict each other", words: words(`keep one|leave (it|one of the two) out|join |at most one|exactly one|expected one condition|but the field is|has (a weight|no other field)|says? the same|the address is that of`),
		Cause: "The document says the same thing twice, or a field does not go with another. The message names what to leave out.",
		Wrong: service + "endpoints: [{address: \"10.0.0.1:80\"}, {address: \"10.0.0.1:80\"}]\n",
		Right: service + "endpoints: [{address: \"10.0.0.1:80\"}, {address: \"10.0.0.2:80\"}]\n",
	},
	{
		ID: "D0299", Title: "a value cannot be used", words: words(``),
		Cause: "The value has the right type, but its content is not usable here: an address without a port, a duration without a unit, a name with a blank. The message has the rule.",
		Wrong: service + "timeout: 5 seconds\n",
		Right: service + "timeout: 5s\n",
	},
	{
		ID: "B0101", Title: "the bootstrap is not JSON", words: words(`not JSON`),
		Cause: "JSON has no comments and no comma before a closing bracket, and its keys are in double quotes.",
		Wrong: bootstrap + ",}\n",
		Right: bootstrap + "}\n",
	},
	{
		ID: "B0102", Title: "a required key is missing", words: words(`found (nothing|none of them|an empty (string|list)|none: )`),
		Cause: "The key is missing or empty. The message names it; an ignored key with a similar name is probably a misspelt one.",
		Wrong: `{"xds_servers": [{"channel_creds": [{"type": "insecure"}]}]}` + "\n",
		Right: bootstrap + "}\n",
	},
	{
		ID: "B0103", Title: "a value has the wrong type", words: words(`found (null|an object|a list|a string|a number|a boolean)`),
		Cause: "A port or an ID is text too, and needs quotes; lists have brackets even around a single item.",
		Wrong: `{"xds_servers": {"server_uri": "dns:///xds:443"}}` + "\n",
		Right: bootstrap + "}\n",
	},
	{
		ID: "B0104", Title: "a key is there twice", words: words(`once, found`),
		Cause: "Keep one of the two: programs disagree on which one counts.",
		Wrong: bootstrap + `, "node": {"id": "b"}}` + "\n",
		Right: bootstrap + "}\n",
	},
	{
		ID: "B0199", Title: "a value cannot be used", words: words(``),
		Cause: "The value has the right type, but not a content that the key accepts. The message says what was expected.",
		Wrong: bootstrap + `, "dns_fallback": "always"}` + "\n",
		Right: bootstrap + `, "dns_fallback": "never"}` + "\n",
	},
}
