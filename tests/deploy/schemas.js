// schemas: holds every object of the given manifests against Kubernetes' published schemas (npm: kubernetes-models, made of its
// OpenAPI description). Values are checked here; fields that a schema does not know it lets pass, so each object is also written
// to objects.ts as a literal of its published type, for the compiler to find them. Run by schemas.sh.
//   node schemas.js objects.ts MANIFEST...
const fs = require('fs');
const { parseAllDocuments } = require('yaml');

const [typed, ...files] = process.argv.slice(2);
let objects = 0, wrong = 0, text = '';

function complain(words) {
    wrong++;
    console.error(`WRONG: ${words}`);
}

for (const file of files) {
    for (const document of parseAllDocuments(fs.readFileSync(file, 'utf8'), { version: '1.1' })) {
        for (const error of document.errors) complain(`${file}: ${error.message}`);
        const { apiVersion, kind, ...rest } = document.toJS();
        const type = require(`kubernetes-models/${apiVersion}`)[kind];
        try {
            new type({ apiVersion, kind, ...rest }).validate();
        } catch (error) {
            complain(`${file}: ${kind}: ${error.message}`);
        }
        text += `import { I${kind} as T${objects} } from 'kubernetes-models/${apiVersion}';\n` +
            `export const object${objects}: T${objects} = ${JSON.stringify({ apiVersion, kind, ...rest }, null, 1)};\n`;
        objects++;
    }
}
fs.writeFileSync(typed, text);
console.log(`${objects} objects, ${wrong} wrong`);
process.exit(objects > 0 && wrong === 0 ? 0 : 1);
