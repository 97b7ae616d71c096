package api

// StaleFields returns the fields that have a description but do not exist in any type.
func StaleFields(routes []Route) []string {
	types := make(schemas)
	paths(routes, types)
	var stale []string
	for name, all := range fields() {
		properties, _ := types[name]["properties"].(Object)
		for field := range all {
			if properties[field] == nil {
				stale = append(stale, name+"."+field)
			}
		}
	}
	return stale
}
