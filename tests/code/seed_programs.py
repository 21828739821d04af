"""Programs as agents write them: top-level await, a database, `datetime` without an import."""

DATABASE = """
async def db_query(sql, params=None):
    if sql.startswith('UPDATE'):
        return []
    if 'user_activities' in sql:
        return [{'user_id': n % 3, 'action': 'read', 'timestamp': n} for n in range(9)]
    if 'documents' in sql:
        text = 'mail ada@example.org or call 555-123-4567, see http://example.org'
        return [{'id': n, 'title': 't', 'content': text} for n in range(2)]
    if 'pipeline_input' in sql:
        return [{'id': 1, 'content': 'abc'}, {'id': 2, 'content': ''}]
    return [{'id': 1, 'name': 'Ada', 'email': 'ada@example.org'}, {'id': 2, 'email': ''}]
"""

SEED_PROGRAMS = {
    "execute": r"""
# Get data from database
users = await db_query('SELECT * FROM users LIMIT 10')
debug(f'Retrieved {len(users)} users', 'INFO')

# Process data
processed_users = []
for user in users:
    processed_user = {
        'id': user['id'],
        'name': user.get('name', 'Unknown'),
        'email': user.get('email', ''),
        'domain': user.get('email', '').split('@')[-1] if '@' in user.get('email', '') else 'unknown'
    }
    processed_users.append(processed_user)

# Set result
__result__ = {
    'total_users': len(users),
    'processed_users': processed_users
}
""",
    "debug": """
data = [1, 2, 3, 4, 5]
debug('Starting processing', 'INFO')

result = []
for item in data:
    processed = item * 2
    result.append(processed)
    debug(f'Processed item {item} -> {processed}', 'DEBUG')

debug('Processing complete', 'INFO')
__result__ = result
""",
    "analysis": """
# Get user activity data
activities = await db_query('''
    SELECT user_id, action, timestamp
    FROM user_activities
    WHERE timestamp > NOW() - INTERVAL '7 days'
    ORDER BY timestamp
''')

debug(f'Analyzing {len(activities)} activities', 'INFO')

# Analyze patterns
user_patterns = {}
for activity in activities:
    user_id = activity['user_id']
    action = activity['action']

    if user_id not in user_patterns:
        user_patterns[user_id] = {}

    if action not in user_patterns[user_id]:
        user_patterns[user_id][action] = 0

    user_patterns[user_id][action] += 1

# Find most active users
most_active = sorted(user_patterns.items(),
                    key=lambda x: sum(x[1].values()),
                    reverse=True)[:10]

__result__ = {
    'total_activities': len(activities),
    'unique_users': len(user_patterns),
    'most_active_users': most_active,
    'analysis_timestamp': datetime.utcnow().isoformat()
}
""",
    "extraction": r"""
import re
from collections import Counter

# Get unprocessed documents
documents = await db_query('''
    SELECT id, title, content
    FROM documents
    WHERE processed = false
    LIMIT 20
''')

debug(f'Processing {len(documents)} documents', 'INFO')

extracted_knowledge = []

for doc in documents:
    # Extract entities
    content = doc['content']

    # Extract emails
    emails = re.findall(r'\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b', content)

    # Extract phone numbers
    phones = re.findall(r'\b\d{3}[-.]?\d{3}[-.]?\d{4}\b', content)

    # Extract URLs
    urls = re.findall(r'http[s]?://(?:[a-zA-Z]|[0-9]|[$-_@.&+]|[!*\(\),]|(?:%[0-9a-fA-F][0-9a-fA-F]))+', content)

    # Extract keywords
    words = re.findall(r'\b\w+\b', content.lower())
    word_freq = Counter(words)
    keywords = [word for word, freq in word_freq.most_common(10) if len(word) > 3]

    knowledge = {
        'document_id': doc['id'],
        'title': doc['title'],
        'entities': {
            'emails': emails,
            'phones': phones,
            'urls': urls
        },
        'keywords': keywords,
        'word_count': len(words),
        'extracted_at': datetime.utcnow().isoformat()
    }

    extracted_knowledge.append(knowledge)

    # Mark as processed
    await db_query(
        'UPDATE documents SET processed = true WHERE id = :id',
        {'id': doc['id']}
    )

    debug(f'Processed document {doc["id"]}', 'DEBUG')

__result__ = {
    'processed_documents': len(documents),
    'extracted_knowledge': extracted_knowledge
}
""",
    "pipeline": """
debug('Starting pipeline debugging', 'INFO')

# Check data flow
try:
    # Step 1: Input validation
    input_data = await db_query('SELECT * FROM pipeline_input LIMIT 5')
    debug(f'Input data: {len(input_data)} records', 'INFO')
    inspect_var('input_data', input_data)

    # Step 2: Processing logic
    processed = []
    for item in input_data:
        if 'content' in item and item['content']:
            processed_item = {
                'id': item['id'],
                'content_length': len(item['content']),
                'has_content': True
            }
        else:
            processed_item = {
                'id': item['id'],
                'content_length': 0,
                'has_content': False
            }
            debug(f'Missing content for item {item["id"]}', 'WARNING')

        processed.append(processed_item)

    debug(f'Processed {len(processed)} items', 'INFO')
    inspect_var('processed', processed)

    # Step 3: Output validation
    valid_output = [item for item in processed if item['has_content']]
    debug(f'Valid output: {len(valid_output)} items', 'INFO')

    __result__ = {
        'input_count': len(input_data),
        'processed_count': len(processed),
        'valid_output_count': len(valid_output),
        'debug_summary': get_debug_info()
    }

except Exception as e:
    debug(f'Error in pipeline: {str(e)}', 'ERROR')
    __result__ = {
        'error': str(e),
        'debug_summary': get_debug_info()
    }
""",
}
